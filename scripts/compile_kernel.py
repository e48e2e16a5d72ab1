#!/usr/bin/env python3
"""Compile a kernel for several architectures, with no GPU; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["compile", *sys.argv[1:]]))

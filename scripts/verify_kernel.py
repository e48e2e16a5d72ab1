#!/usr/bin/env python3
"""Verify a kernel against its reference; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["verify", *sys.argv[1:]]))

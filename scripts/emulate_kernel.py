#!/usr/bin/env python3
"""Run a kernel on the emulated GPU; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["emulate", *sys.argv[1:]]))

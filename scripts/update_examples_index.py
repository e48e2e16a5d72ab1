#!/usr/bin/env python3
"""Rebuild the index from a CUTLASS checkout; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["update-examples-index", *sys.argv[1:]]))

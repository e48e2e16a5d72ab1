#!/usr/bin/env python3
"""Keep, list, compare and restore versions of a kernel file; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["checkpoint", *sys.argv[1:]]))

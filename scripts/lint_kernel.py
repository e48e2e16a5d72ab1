#!/usr/bin/env python3
"""Check a kernel file without running it; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["lint", *sys.argv[1:]]))

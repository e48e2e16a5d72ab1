#!/usr/bin/env python3
"""Append an entry to the development log beside a kernel file; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["note", *sys.argv[1:]]))

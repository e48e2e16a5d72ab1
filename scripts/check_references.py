#!/usr/bin/env python3
"""Check every block, name and link of the references; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["check-references", *sys.argv[1:]]))

#!/usr/bin/env python3
"""Look something up in the references; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["search", *sys.argv[1:]]))

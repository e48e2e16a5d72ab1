#!/usr/bin/env python3
"""Try problem files: are they worth solving; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["audit", *sys.argv[1:]]))

#!/usr/bin/env python3
"""Bring an example here; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["fetch", *sys.argv[1:]]))

#!/usr/bin/env python3
"""Profile a kernel, under ncu or on the emulated GPU; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["profile", *sys.argv[1:]]))

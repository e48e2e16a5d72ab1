#!/usr/bin/env python3
"""Time a kernel beside its baselines; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["benchmark", *sys.argv[1:]]))

#!/usr/bin/env python3
"""Say what this machine has for CuTe DSL kernels and what it lacks; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["doctor", *sys.argv[1:]]))

#!/usr/bin/env python3
"""Write a CuTe DSL kernel for a PyTorch function, offline, and take it through all the stages; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["generate", *sys.argv[1:]]))

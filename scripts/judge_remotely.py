#!/usr/bin/env python3
"""Run a stage of the judge on a machine with a GPU, over ssh."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["remote", *sys.argv[1:]]))

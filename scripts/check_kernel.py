#!/usr/bin/env python3
"""Lint, compile, verify, benchmark and keep a kernel, up to the first stage that fails; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["check", *sys.argv[1:]]))

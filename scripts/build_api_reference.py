#!/usr/bin/env python3
"""Write references/api-*.md from the installed DSL; see --help."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cutesmith.cli import main

sys.exit(main(["build-api-reference", *sys.argv[1:]]))

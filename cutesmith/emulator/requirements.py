"""What the emulated GPU needs of this machine."""

from __future__ import annotations

import importlib.util

from cutesmith.errors import CandidateError
from cutesmith.verdicts import ExitCode

NEEDED = ("llvmlite", "numpy")
"""What the emulated GPU needs besides torch and the DSL."""


def require_emulator() -> None:
    """Raise CandidateError (UNAVAILABLE, with the install line) where the emulated GPU lacks a package."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        what = f"the emulated GPU needs {' and '.join(missing)}: pip install {' '.join(missing)}"
        raise CandidateError(what, ExitCode.UNAVAILABLE)

"""What the emulated GPU needs of this machine, and importing it before it is needed; imports next to nothing itself."""

from __future__ import annotations

import contextlib
import importlib.util

from cutesmith.errors import CandidateError
from cutesmith.recording.dsl_import import import_dsl
from cutesmith.verdicts import ExitCode

NEEDED = ("llvmlite", "numpy")
"""What the emulated GPU needs besides torch and the DSL."""


def require_emulator() -> None:
    """Raise CandidateError (UNAVAILABLE, with the install line) where the emulated GPU lacks a package."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        what = f"the emulated GPU needs {' and '.join(missing)}: pip install {' '.join(missing)}"
        raise CandidateError(what, ExitCode.UNAVAILABLE)


def import_emulator() -> None:
    """Import the DSL and the emulator, and make its machine code that is the same for every kernel."""
    import_dsl()
    with contextlib.suppress(ImportError):
        import cutesmith.emulator.device  # noqa: F401
        from cutesmith.emulator.native.jit import compiled_access
        from cutesmith.emulator.sanitizer.access import access_ir

        compiled_access(access_ir())

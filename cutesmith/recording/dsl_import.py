"""Importing the DSL where it is installed, before somebody needs it; this module itself imports nothing."""

from __future__ import annotations

import contextlib


def import_dsl() -> None:
    """Import the DSL, and TVM-FFI, which takes seconds; does nothing where they are not installed."""
    with contextlib.suppress(ImportError):
        import cutlass.cute  # noqa: F401
    with contextlib.suppress(ImportError):
        import tvm_ffi  # noqa: F401

"""Importing the emulated GPU where it can be, before somebody needs it; this module itself imports next to nothing."""

from __future__ import annotations

import contextlib

from cutesmith.recording.dsl_import import import_dsl


def import_emulator() -> None:
    """Import the DSL and the emulator, and make its machine code that is the same for every kernel."""
    import_dsl()
    with contextlib.suppress(ImportError):
        import cutesmith.emulator.device  # noqa: F401
        from cutesmith.emulator.native.jit import compiled_access
        from cutesmith.emulator.sanitizer.access import access_ir

        compiled_access(access_ir())

"""Importing the emulated GPU where it can be, before somebody needs it; this module itself imports next to nothing."""

from __future__ import annotations

import contextlib

from cutesmith.recording.dsl_import import import_dsl


def import_emulator() -> None:
    """Import the DSL and the emulator, and make its machine code that is the same for every kernel."""
    import_dsl()
    with contextlib.suppress(ImportError):
        import cutesmith.emulator.device
        from cutesmith.emulator.sanitizer.access import access_ir
        from cutesmith.emulator.native.jit import compiled_access

        compiled_access(access_ir())

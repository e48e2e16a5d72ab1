"""Errors that end an emulated launch; those that name an instruction or carry findings are in `faults.py`."""

from __future__ import annotations

from cutesmith.errors import CutesmithError
from cutesmith.verdicts import ExitCode


class EmulationError(CutesmithError):
    """An emulated launch that cannot go on."""

    exit_code = ExitCode.CRASHED


class EndlessLoop(EmulationError):
    """The step limit was reached."""

    exit_code = ExitCode.TIMED_OUT


class LaunchRefused(EmulationError):
    """A launch that no GPU of the architecture would start."""


class PtxSyntaxError(EmulationError):
    """PTX text that cannot be read; the message names the line."""

    exit_code = ExitCode.DOES_NOT_COMPILE


class EmulatorBug(EmulationError):
    """The emulator itself failed; this says nothing about the kernel."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"the emulated GPU itself failed: {type(error).__name__}: {error}",
            hint="This is a bug of cutesmith, not of the kernel: verify the kernel on a GPU, and report the bug.",
        )

"""What goes wrong while a kernel is emulated: findings of the sanitizer, and errors that end the launch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cutesmith.emulator.ptx.printer import format_location, location_in
from cutesmith.emulator.ptx.syntax import Instruction, Location
from cutesmith.errors import CutesmithError
from cutesmith.verdicts import ExitCode

KINDS = (
    "out_of_bounds",
    "misaligned",
    "uninitialised_read",
    "race",
    "divergent_barrier",
    "missing_wait",
    "deadlock",
    "endless_loop",
    "invalid_operand",
    "trap",
    "assertion",
)


@dataclass(frozen=True)
class Finding:
    """One fault: its kind (KINDS), a sentence, the Python line, thread (x, y, z) and block (x, y, z) that met it first.

    `other` is the line of the other access of a race; `count` how often the same line was found.
    """

    kind: str
    message: str
    location: Location | None
    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    kernel: str = ""
    other: Location | None = None
    count: int = 1

    def describe(self, path: Path) -> str:
        """One sentence with the line of `path` that is to blame, where one of the callers is in it."""
        at = own_line(self.location, path)
        first = f"{self.kind.replace('_', ' ')} at {at}: {self.message} (thread {self.thread}, block {self.block})"
        against = f"; the other access is at {own_line(self.other, path)}" if self.other else ""
        return first + against + (f"; {self.count} times" if self.count > 1 else "")


def own_line(location: Location | None, path: Path) -> str:
    """Such as "kernel.py:31": the innermost caller in the file `path`, else the innermost of all."""
    frame = location_in(location, path)
    return f"{Path(frame.file).name}:{frame.line}" if frame else "an unknown line"


class EmulationError(CutesmithError):
    """An emulated launch that cannot go on."""

    exit_code = ExitCode.CRASHED


class KernelFault(EmulationError):
    """The kernel did what no kernel may; `findings` say what, the first one ended the launch."""

    def __init__(self, message: str, findings: tuple[Finding, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = findings


class EndlessLoop(EmulationError):
    """The step limit was reached."""

    exit_code = ExitCode.TIMED_OUT


class LaunchRefused(EmulationError):
    """A launch that no GPU of the architecture would start."""


class UnsupportedInstruction(EmulationError):
    """An instruction that is not executed yet: never guessed at."""

    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, instruction: Instruction, why: str = "") -> None:
        at = f" ({format_location(instruction.location)})" if instruction.location else ""
        super().__init__(
            f"the emulated GPU does not execute `{instruction.full_opcode}`{at}{': ' + why if why else ''}",
            hint="Verify this kernel on a GPU, or write it without this instruction.",
        )
        self.instruction = instruction


class EmulatorBug(EmulationError):
    """The emulator itself failed: no word on the kernel."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, error: Exception) -> None:
        super().__init__(
            f"the emulated GPU itself failed: {type(error).__name__}: {error}",
            hint="This is a bug of cutesmith and says nothing of the kernel: verify it on a GPU, and report the bug.",
        )


class PtxSyntaxError(EmulationError):
    """PTX text that cannot be read; the message names the line."""

    exit_code = ExitCode.DOES_NOT_COMPILE

"""What a kernel does wrong: findings of the sanitizer, and the errors that carry them or name an instruction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.ptx.printer import format_location, location_in
from cutesmith.emulator.ptx.syntax import Instruction, Location
from cutesmith.verdicts import ExitCode
from cutesmith.verdicts import FaultKind as FaultKind


@dataclass(frozen=True)
class Finding:
    """One fault: its kind, a sentence, the Python line, thread (x, y, z) and block (x, y, z) that met it first.

    `other` is the line of the other access of a race; `count` how often the same line was found.
    """

    kind: FaultKind
    message: str
    location: Location | None
    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    kernel: str = ""
    other: Location | None = None
    count: int = 1

    def sign(self, path: Path) -> str:
        """What the same fault has in every launch: its kind and its lines in `path`."""
        return " ".join((self.kind.value, own_line(self.location, path), own_line(self.other, path)))

    def describe(self, path: Path) -> str:
        """One sentence with the line of `path` that is at fault, if a caller is in that file."""
        at = own_line(self.location, path)
        first = f"{self.kind.words} at {at}: {self.message} (thread {self.thread}, block {self.block})"
        against = f"; the other access is at {own_line(self.other, path)}" if self.other else ""
        return first + against + (f"; {self.count} times" if self.count > 1 else "")


def own_line(location: Location | None, path: Path) -> str:
    """Such as "kernel.py:31": the innermost caller in the file `path`, else the innermost of all."""
    frame = location_in(location, path)
    return f"{Path(frame.file).name}:{frame.line}" if frame else "an unknown line"


_MOST_TOLD = 5
_GIVE_OTHER_VALUES = (FaultKind.RACE, FaultKind.MISSING_WAIT, FaultKind.MISSING_FENCE)


def once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings; of the two accesses of a race, each of which met the other, the one that was found first."""
    kept: dict[object, Finding] = {}
    for number, finding in enumerate(findings):
        lines = frozenset((finding.location, finding.other))
        kept.setdefault(lines if finding.kind is FaultKind.RACE and finding.other else number, finding)
    return tuple(kept.values())


def told(findings: Sequence[Finding], path: Path) -> str:
    """A sentence for each finding, the first ones in whole; empty without any."""
    findings = once(findings)
    more = f"; and {len(findings) - _MOST_TOLD} more findings" if len(findings) > _MOST_TOLD else ""
    return "; ".join(finding.describe(path) for finding in findings[:_MOST_TOLD]) + more


class KernelFault(EmulationError):
    """The kernel is at fault: `findings` say how; `fatal` is the one that ended the launch."""

    def __init__(self, fatal: Finding, findings: tuple[Finding, ...]) -> None:
        super().__init__(f"{fatal.kind.words}: {fatal.message}")
        self.fatal, self.findings = fatal, findings

    @property
    def cause(self) -> Finding:
        """The finding that may explain the others: one that lets the kernel read other values, else the fatal one."""
        return next(iter(self._of_other_values), self.fatal)

    @property
    def _of_other_values(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in _GIVE_OTHER_VALUES]

    def describe(self, path: Path) -> str:
        """What may be the cause, the fatal finding, then each other one: in a deadlock, every role that waits."""
        before = self._of_other_values
        others = [finding for finding in self.findings if finding not in (*before, self.fatal)]
        text = told((self.fatal, *others), path)
        return f"{told(before, path)}; with what was read there the launch ends: {text}" if before else text


class UnsupportedInstruction(EmulationError):
    """An instruction that is not executed yet, or several: `forms` are their names with place and reason."""

    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, instruction: Instruction, why: str = "", more: tuple[str, ...] = ()) -> None:
        at = f" ({format_location(instruction.location)})" if instruction.location else ""
        self.forms = (f"`{instruction.full_opcode}`{at}{': ' + why if why else ''}", *more)
        super().__init__(
            f"the emulated GPU does not execute {'; nor '.join(self.forms)}",
            hint="Verify this kernel on a GPU, or write it without this instruction.",
        )
        self.instruction, self.why = instruction, why

    @classmethod
    def together(cls, errors: list[UnsupportedInstruction]) -> UnsupportedInstruction:
        """One error that names the forms of all of these (at least one)."""
        first, *others = errors
        return cls(first.instruction, first.why, tuple(form for other in others for form in other.forms))

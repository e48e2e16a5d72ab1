"""What the cases of one verification come to: the exit code, the sentence, and the violation that decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from cutesmith.problems import contract
from cutesmith.verdicts import CaseOutcome, CaseReport, ExitCode, InputKind, Mechanism, Violation, deciding, failed

EXIT_CODES = {
    CaseOutcome.WRONG_RESULT: ExitCode.WRONG_RESULT,
    CaseOutcome.REJECTED: ExitCode.REJECTED,
    CaseOutcome.FAULT: ExitCode.CRASHED,
    CaseOutcome.NOT_LAUNCHED: ExitCode.DOES_NOT_COMPILE,
    CaseOutcome.RAISED: ExitCode.CRASHED,
    CaseOutcome.HANGS: ExitCode.TIMED_OUT,
}  # of a verdict whose worst case came out so
ONE_CODE = (
    "Let one kernel serve all sizes: sizes are arguments of it, not constants that it is compiled for. Or let a small "
    "case take that code"
)
BY_A_SET = "one of get_input_sets(), or get_inputs() by EMULATED_SIZES."
BY_SIZES = "raise EMULATED_SIZES until it does, or give one of get_input_sets() the size."
BY_THE_KERNEL = "the problem is given, so lower the bound from which the kernel takes it. A GPU verifies at full size."
TF32_CONVOLUTIONS = "float32 convolutions may round to tf32, as PyTorch's flag for cuDNN lets them"
MOST_LEFT = 4  # cases that a quick run leaves to a full one, that are named
MOST_OF_A_REASON = 120  # characters of why a kernel declines; the case has all of it
OTHER_VALUES = "Let get_inputs() draw values for which reference_fn gives finite results."


@dataclass(frozen=True)
class Reached:
    """A verdict's exit code and sentence, the violation that decided, the case that failed by it, and a note."""

    exit_code: ExitCode
    summary: str
    violation: Violation | None = None
    case: str = ""
    note: str = ""


def set_name(index: int) -> str:
    """How verdicts call one of the file's own input sets, `get_inputs()` for -1."""
    return "get_inputs()" if index < 0 else f"get_input_sets()[{index}]"


def options_that_do_not_count(kernel: Path) -> str:
    """That options of a problem stand in a kernel file whose problem is another file; empty where none do."""
    names = contract.inspect(kernel, with_problem=True).names
    found = [name for name in contract.DRAWING_OPTIONS if name in names]
    one = len(found) == 1
    where = f"{'does' if one else 'do'} not count: write {'it' if one else 'them'} into the problem's file"
    return f"{' and '.join(found)} of {kernel.name} {where}" if found else ""


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The cases of one verification and how far they reach: where they ran, at which sizes, for which inputs.

    `shrunk` as of `Round`; `idle`: what of the file no case ran; `shapes`: whether the problem promises other sizes.
    `own_layouts`: the inputs that no case had in another layout, as the kernel declines each, and why it does. `left`:
    cases that a quick run leaves to a full one.
    """

    path: Path
    cases: Sequence[CaseReport]
    ran_on: str
    device_name: str
    reduced: str
    shrunk: Mapping[int, str]
    shapes: bool
    kinds: Sequence[InputKind]
    idle: Sequence[str]
    own_layouts: Mapping[str, str]
    own_problem: bool
    tf32_convolutions: bool
    left: Sequence[str] = ()

    def reached(self) -> Reached:
        """The verdict's exit code and sentence; what failed counts most, then what no case executed or decided."""
        wrong = [case for case in self.cases if not case.passed]
        if wrong:
            worst = deciding(wrong)
            assert worst.violation is not None, "what did not pass says why"
            note = self._own_tolerance(worst) + self._ignored()
            text = failed(self.path, f"{worst.name}: {worst.explanation}", wrong, note)
            return Reached(EXIT_CODES[worst.outcome], text, worst.violation, worst.name, note)
        if missing := [case.remark for case in self.cases if case.outcome is CaseOutcome.NOT_EXECUTED]:
            rest = f"{self._counted()}{self._shrunk()}{self._idle()}"
            told = f"not verified: {missing[0]}, which no case executed; else {rest}"
            text = f"{self.path.name}: {told}{self._ignored()}\n{ONE_CODE}: {self._smaller_way()}"
            return Reached(ExitCode.UNAVAILABLE, text, Violation(None, Mechanism.FULL_SIZE_LAUNCHES, told))
        if undecided := self._undecided():
            told = f"no element of any result could be judged ({undecided})"
            text = f"{self.path.name}: {told}\n{OTHER_VALUES}"
            return Reached(ExitCode.UNAVAILABLE, text, Violation(None, Mechanism.NOTHING_DECIDED, told))
        return Reached(ExitCode.PASSED, f"{self.path.name}: {self._where()}, {self._counted()}{self._qualified()}")

    def _own_tolerance(self, worst: CaseReport) -> str:
        """That the kernel file's own TOLERANCE does not count, where a problem of somebody else decides."""
        wrong = worst.outcome is CaseOutcome.WRONG_RESULT and not self.own_problem
        ignored = wrong and "TOLERANCE" in contract.inspect(self.path, with_problem=True).names
        return f". TOLERANCE of {self.path.name} does not count: the problem says what is allowed" if ignored else ""

    def _undecided(self) -> str:
        """Why the first case that was executed is not decided, where none was; empty where one was, or none ran."""
        told = [case for case in self.cases if case.outcome is CaseOutcome.NOT_DECIDED]
        decided = any(case.outcome is CaseOutcome.PASSED for case in self.cases)
        return "" if decided or not told else f"{told[0].name}: {told[0].remark}"

    def _where(self) -> str:
        done = "compiled" if self.ran_on == "compile" else f"verified on {self.device_name or self.ran_on}"
        done += f" at reduced sizes ({self.reduced})" if self.reduced else ""
        declared = [f"`{kind.name}` {kind.domain}" for kind in self.kinds if kind.domain]
        done += f" for {' and '.join(declared)} only" if declared else ""
        return done + ("" if self.shapes else " for these sizes")

    def _qualified(self) -> str:
        whose = ", by the file's own reference" if self.own_problem else ""
        whose += self._left_to_a_full_run()
        whose += f"; {TF32_CONVOLUTIONS}" if self.tf32_convolutions else ""
        return whose + self._untried_layouts() + self._idle() + self._ignored()

    def _ignored(self) -> str:
        told = "" if self.own_problem else options_that_do_not_count(self.path)
        return f". {told}" if told else ""

    def _idle(self) -> str:
        """What of the file no case ran, as far as the emulated GPU sees it; a GPU runs the file without marks."""
        return f"; no case {' or '.join(self.idle)}" if self.idle else ""

    def _left_to_a_full_run(self) -> str:
        if not self.left:
            return ""
        more = f" and {len(self.left) - MOST_LEFT} more" if len(self.left) > MOST_LEFT else ""
        return f"; --quick leaves to a run without it: {', '.join(self.left[:MOST_LEFT])}{more}"

    def _untried_layouts(self) -> str:
        if not self.own_layouts:
            return ""
        names = " or ".join(f"`{name}`" for name in self.own_layouts)
        why = shorten(next(iter(self.own_layouts.values())), MOST_OF_A_REASON, placeholder=" …")
        return f"; no other layout of {names} was tried, as the kernel declines each ({why})"

    def _smaller_way(self) -> str:
        """How a small case comes to the code of full size: by the problem, where its author is the kernel's."""
        if not self.own_problem:
            return BY_THE_KERNEL
        return BY_SIZES if "EMULATED_SIZES" in contract.inspect(self.path).names else BY_A_SET

    def _shrunk(self) -> str:
        """Which of the file's own inputs the emulated GPU ran smaller, as what, and for which."""
        sets = [f"{set_name(index)} as {inputs}" for index, inputs in self.shrunk.items()]
        return f"; shrunk: {'; '.join(sets)}" if sets else ""

    def _counted(self) -> str:
        """How many cases were executed and right, of those that could be tried; or how many were recorded."""
        if self.ran_on == "compile":
            return f"{len(self.cases)} recorded cases"
        passed, declined, undecided = (
            sum(case.outcome is outcome for case in self.cases)
            for outcome in (CaseOutcome.PASSED, CaseOutcome.DECLINED, CaseOutcome.NOT_DECIDED)
        )
        told = f"{passed} of {passed + declined} cases, {declined} declined" if declined else f"{passed} cases"
        return f"{told}, {undecided} not decided" if undecided else told

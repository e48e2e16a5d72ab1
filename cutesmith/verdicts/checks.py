"""Verdicts on a kernel file: lint, verify, benchmark, all in turn, and what they are made of."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from cutesmith.verdicts.base import ExitCode, Verdict
from cutesmith.verdicts.compiled import CompileVerdict
from cutesmith.verdicts.violations import CaseOutcome, Excuse, FaultKind, Mechanism, Violation, outcome_of


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One remark on a source line: a rule id, where, what is wrong, and the fix."""

    rule: str
    severity: str  # "error", "warning" or "note"
    line: int
    column: int
    message: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class LintVerdict(Verdict):
    """Static findings of one file."""

    stage: ClassVar[str] = "lint"

    path: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """How far one output is from the float64 reference, with the worst element named.

    `excuse`: why more than `rtol`, `atol` and `units` was allowed of the element that is furthest beyond these, None
    where no error is or nothing excuses it. `excused_error` is what that element is off by, `excused_allowed` what was
    allowed of it, "inf" where any number passes.
    """

    output: int
    dtype: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    max_ulp: float  # in units of the output dtype's last place
    mismatches: int
    elements: int
    rtol: float = 0.0  # allowed of each expected value, and `atol` beside it
    atol: float = 0.0
    units: float = 0.0  # allowed beside these, in the last place of each element
    worst_index: tuple[int, ...] = ()
    worst_actual: float | str | None = None
    worst_expected: float | str | None = None
    where: str = ""  # the places of the mismatches in words, such as "the last 20 of dimension 1"
    rms: float | None = None  # root mean square of the error over that of the reference; None where that is not known
    rms_native: float | None = None  # the same for PyTorch's own result
    excuse: Excuse | None = None
    excused_error: float = 0.0
    excused_allowed: float | str = 0.0


_BEFORE_THE_REASON = {
    CaseOutcome.REJECTED: "rejected: ",
    CaseOutcome.FAULT: "sanitizer: ",
    CaseOutcome.DECLINED: "declined: ",
    CaseOutcome.NOT_RUN: "not run: ",
    CaseOutcome.NOT_DECIDED: "not decided: ",
    CaseOutcome.RECORDED: "recorded: ",
    CaseOutcome.NOT_EXECUTED: "not executed: ",
    CaseOutcome.NOT_LAUNCHED: "cannot be launched at full size: ",
    CaseOutcome.RAISED: "raises at full size: ",
    CaseOutcome.HANGS: "hangs: ",
}


@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """One checked set of inputs: what it was, what became of it, and why.

    `violation`: what is held against the kernel where the case did not pass; else `remark` may say something of it, or
    why it was declined or not run. `same_as`: the case before it that failed in the same way, which explains both.
    `whole`: the inputs of `get_inputs()` where these are some of their elements, with whatever values. `shapes`: of all
    inputs, with whatever layouts.
    """

    name: str
    inputs: str
    outcome: CaseOutcome = CaseOutcome.PASSED
    violation: Violation | None = None
    remark: str = ""
    outputs: tuple[OutputError, ...] = ()
    same_as: str = ""
    whole: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is held against the kernel; a case that was declined, not run or not decided passes."""
        return self.outcome.passed

    @property
    def explanation(self) -> str:
        """What is wrong, or what is to be said of it; empty where nothing is."""
        text = self.violation.text if self.violation else self.remark
        return f"{_BEFORE_THE_REASON.get(self.outcome, '')}{text}"

    @property
    def rule(self) -> str:
        """The row of the table of exploits that it looks like, or nothing."""
        return str(self.violation.rule or "") if self.violation else ""

    def violated(self, violation: Violation, outcome: CaseOutcome | None = None) -> CaseReport:
        """This case, failed; `outcome` where the violation does not say it."""
        return replace(self, outcome=outcome or outcome_of(violation), violation=violation)

    def to_dict(self) -> dict[str, Any]:
        """Ready for `strict_json`."""
        return {
            "name": self.name,
            "inputs": self.inputs,
            "outcome": self.outcome,
            "passed": self.passed,
            "problem": self.explanation,
            "rule": self.rule,
            "same_as": self.same_as,
            "mechanism": self.violation.mechanism if self.violation else "",
            "outputs": self.outputs,
        }


VERIFIED = "verified"
VERIFIED_BY_EMULATION = "verified on the emulated GPU"
QUICK_VALUES = ", with quick values"  # added to a status: few values were drawn, so that it counts as neither


@dataclass(frozen=True)
class InputKind:
    """What one input was taken for, the draws that changed it, and those that its kind or the reference rules out.

    `left_out` has the reason of each. `declined`: those that the kernel refused. `domain`: what the problem declares
    that it always is, empty where it declares nothing.
    """

    name: str
    kind: str
    domain: str = ""
    drawn: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    declined: tuple[str, ...] = ()

    def after(self, refused: Mapping[str, str], declined: Collection[str] = ()) -> InputKind:
        """With the draws that the reference `refused`, with its reasons, and those that the kernel `declined`."""
        left = {name: refused[name] for name in self.drawn if name in refused}
        told = tuple(name for name in self.drawn if name in declined)
        drawn = tuple(name for name in self.drawn if name not in left and name not in told)
        return replace(self, drawn=drawn, left_out={**self.left_out, **left}, declined=told)


class Precision(str, enum.Enum):
    """What products and convolutions of float32 may round their factors to.

    PYTORCH: to tf32 where PyTorch's own flags allow it for the operation: convolutions by default.
    FLOAT32: to nothing less, whatever the flags say. TF32: to tf32 everywhere.
    """

    PYTORCH = "pytorch"
    FLOAT32 = "float32"
    TF32 = "tf32"

    __str__ = str.__str__


@dataclass(frozen=True, kw_only=True)
class VerifyVerdict(Verdict):
    """Whether `kernel_fn` computes `reference_fn`, where that was tried, and on which inputs."""

    stage: ClassVar[str] = "verify"

    path: str
    ran_on: str  # "gpu", "emulator", "compile"
    device: str = ""
    cases: tuple[CaseReport, ...] = ()
    declined: int = 0  # of the passing cases, those that the kernel refused to run
    reduced: str = ""  # what get_inputs() ran as, where it is more than the emulated GPU affords
    values: str = "full"  # "quick": floats that are moved or scaled as a whole, and one other set of scalars
    left: tuple[str, ...] = ()  # derived cases that a quick run left, in whole or in part, to a full one
    kinds: tuple[InputKind, ...] = ()  # of the inputs, with what was drawn for each
    rule: str = ""  # the row of the table of exploits that it looks like
    mechanism: str = ""  # the check that found it (`Mechanism`), empty on a pass
    fault: FaultKind | None = None  # where a sanitizer found it: what that is
    tf32_convolutions: bool = False  # it passed since PyTorch's flag lets float32 convolutions round to tf32
    own_problem: bool = False  # the kernel's own file says what it computes: both have one author
    confinement: dict[str, bool] = field(default_factory=dict)
    problem_confinement: dict[str, bool] = field(default_factory=dict)  # of the reference's process, for an own problem
    phases: dict[str, float] = field(default_factory=dict)  # seconds by process and what it did: "reference draw"
    decided_by: str = ""  # the case that the summary explains, where one failed
    note: str = ""  # what the summary adds to that: a TOLERANCE that does not count
    log_tail: str = ""

    @property
    def status(self) -> str:
        """`verified` only when it was executed on a GPU; `compiled` when everything but execution was checked.

        Under the exit code of `crashed`: what a sanitizer found (`race`, `missing fence`), `declined` where the kernel
        refuses inputs that it has to take. Under that of `unavailable`: `not decided` where no element could be judged.
        """
        if self.exit_code == ExitCode.CRASHED and self.fault:
            return self.fault.words
        if self.mechanism == Mechanism.REFUSAL.value:
            return "declined"
        if self.mechanism == Mechanism.NOTHING_DECIDED.value:
            return CaseOutcome.NOT_DECIDED.value
        if not self.passed or self.ran_on == "compile":
            return "compiled" if self.passed else super().status
        done = VERIFIED_BY_EMULATION if self.ran_on == "emulator" else VERIFIED
        return done + QUICK_VALUES if self.values == "quick" else done

    @property
    def conclusion(self) -> str:
        """The summary for those who read the cases too: which one decided, not again what is wrong with it."""
        if not self.decided_by:
            return self.summary
        wrong = [case for case in self.cases if not case.passed]
        return failed(self.path, self.decided_by, wrong, self.note)


def failed(path: str | Path, case: str, wrong: Sequence[CaseReport], note: str) -> str:
    """The sentence on a kernel that fails: by which case, among how many."""
    more = f" (and {len(wrong) - 1} other cases)" if len(wrong) > 1 else ""
    return f"{Path(path).name}: {case}{more}{note}"


def deciding(wrong: Sequence[CaseReport]) -> CaseReport:
    """Of the cases that failed, the one that a verdict names: cheating counts more than what comes first."""
    return next((case for case in wrong if case.outcome is CaseOutcome.REJECTED), wrong[0])


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Device time of one callable: all samples, their median and quartiles (microseconds), and host time per call."""

    name: str
    samples_us: tuple[float, ...]
    median_us: float
    q1_us: float
    q3_us: float
    host_us: float | None = None
    bytes_per_second: float | None = None
    error: str = ""
    mechanism: str = ""  # the limit that the error comes from (`Mechanism`), empty without an error


@dataclass(frozen=True, kw_only=True)
class BenchmarkVerdict(Verdict):
    """The candidate's time beside its baselines and the measured floor of this machine."""

    stage: ClassVar[str] = "benchmark"

    path: str
    device: str = ""
    inputs: str = ""
    timings: tuple[Timing, ...] = ()  # the candidate comes first
    floor_us: float | None = None
    floor_kind: str = ""  # "bytes" or "flops"
    floor_percent: float | None = None  # 100 * floor / candidate median
    algorithmic_bytes: int | None = None
    algorithmic_flops: int | None = None
    copy_bytes_per_second: float | None = None
    matmul_flops_per_second: float | None = None  # of a large matrix product in the function's dtypes, float32 as TF32
    speedups: dict[str, float] = field(default_factory=dict)  # baseline -> baseline median / candidate median
    rule: str = ""
    mechanism: str = ""  # the check that found what is wrong (`Mechanism`), empty on a pass
    own_problem: bool = False  # the kernel's own file says what it computes, and with what it is compared
    problem_confinement: dict[str, bool] = field(default_factory=dict)  # of the baselines' process, for an own problem
    phases: dict[str, float] = field(default_factory=dict)  # seconds by process and what it did: "kernel round"
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckVerdict(Verdict):
    """All stages on one kernel file, up to the first that fails: `stages` are their verdicts in order.

    `untimed` says why nothing was timed where all before passed; `checkpoint` is the number under which the file was
    kept, 0 where it was not. `judged` names what the compilation depends on (a hash), `compiled_before`: it was taken
    from the last check. `problem`: the file by which it was judged, where that is another. `unused_problem`: a
    problem.py beside the file that was not asked for. `saved`: where this is.
    """

    stage: ClassVar[str] = "check"

    path: str
    stages: tuple[LintVerdict | CompileVerdict | VerifyVerdict | BenchmarkVerdict, ...] = ()
    untimed: str = ""
    checkpoint: int = 0
    judged: str = ""
    compiled_before: bool = False
    problem: str = ""
    unused_problem: str = ""
    saved: str = ""

    @property
    def status(self) -> str:
        """That of verification where all passed, else of the stage that failed: `missing wait`."""
        verified = next((one for one in self.stages if isinstance(one, VerifyVerdict)), None)
        if self.passed:
            return verified.status if verified else super().status
        return next((one.status for one in self.stages if one.exit_code == self.exit_code), super().status)

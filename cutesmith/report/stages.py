"""What the pages show of one kernel's verdicts, read from their JSON objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutesmith.profiling.advice import ProfileAdvice
from cutesmith.report.trimming import cut_middle
from cutesmith.verdicts import (
    VERIFIED,
    VERIFIED_BY_EMULATION,
    BenchmarkVerdict,
    CaseOutcome,
    CompileVerdict,
    KernelReport,
    LintVerdict,
    OutputError,
)
from cutesmith.verdicts.reading import read_record

KINDS = {VERIFIED: "good", VERIFIED_BY_EMULATION: "good", "compiled": "fair", "passed": "good", "skipped": "fair"}
KINDS |= {"emulated": "good", "launched": "good", CaseOutcome.NOT_DECIDED.value: "fair"}
LONGEST_FIELD = 600  # bytes of a verdict's own texts


@dataclass(frozen=True, kw_only=True)
class Said:
    """One verdict in a row: `kind` ("good", "fair" or "bad") colours `words`, its status or a benchmark's time."""

    stage: str
    kind: str
    words: str
    summary: str
    seconds: float
    log: str = ""

    @classmethod
    def of(cls, verdict: Mapping[str, Any]) -> Said:
        """What a verdict's JSON object says; summary and log are cut."""
        status, passed = str(verdict.get("status")), verdict.get("exit_code") == 0
        median = (verdict.get("timings") or [{}])[0].get("median_us")
        words = "lint errors" if status == "lint" else cut_middle(status.replace("_", " "), 80)
        return cls(
            stage=str(verdict.get("stage", "")),
            kind=KINDS.get(status, "good" if passed else "bad"),
            words=f"{median:.1f} µs" if passed and median else words,
            summary=cut_middle(str(verdict.get("summary", "")), LONGEST_FIELD),
            seconds=verdict.get("seconds") or 0.0,
            log=cut_middle(str(verdict.get("log_tail") or ""), 4000),
        )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One set of inputs: what is wrong, the row of the table of exploits, and how far outputs are off.

    `outcome` is a value of CaseOutcome, "" in older results. `same_as`: the case that explains what is wrong with both.
    """

    name: str
    inputs: str
    passed: bool = False
    problem: str = ""
    rule: str = ""
    outcome: str = ""
    same_as: str = ""
    outputs: tuple[OutputError, ...] = ()

    @property
    def is_compared(self) -> bool:
        """Whether it passed because its values were compared, and not because nothing could be."""
        return self.passed and self.outcome in ("", CaseOutcome.PASSED.value)

    @property
    def is_recorded(self) -> bool:
        """Whether its launches were written down and checked, and not executed."""
        return self.outcome == CaseOutcome.RECORDED.value

    def words(self, executed: bool) -> str:
        """What a pill says of a case that passed."""
        if not self.is_compared:
            return self.outcome
        return "right" if executed else "launches"


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a verification says: `ran_on` "gpu", "emulator", "compile" or "" for none of these."""

    summary: str
    ran_on: str
    cases: tuple[Case, ...] = ()
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A profile's remarks, and the tool that made it."""

    tool: str = ""
    advice: tuple[ProfileAdvice, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The latest verdict of each stage on one kernel, None where there is none."""

    lint: LintVerdict | None = None
    compile: CompileVerdict | None = None
    verify: Verified | None = None
    benchmark: BenchmarkVerdict | None = None
    profile: Profile | None = None

    @classmethod
    def read(cls, verdicts: Mapping[str, Mapping[str, Any]]) -> Stages:
        """Verdicts' JSON objects by stage; other stages are left out."""
        return read_record(cls, verdicts)

    @property
    def kernels(self) -> Sequence[KernelReport]:
        """Every device kernel, on every architecture."""
        return [kernel for arch in self.compile.archs for kernel in arch.kernels] if self.compile else []

    @property
    def registers(self) -> int | None:
        """The most that one of the kernels takes."""
        return max((kernel.registers for kernel in self.kernels), default=None)

    @property
    def counted(self) -> tuple[str, str] | None:
        """What became of the cases as (label, numbers): those whose values were compared, or that were recorded."""
        if self.verify is None or not self.verify.cases:
            return None
        cases = self.verify.cases
        counted = [case.is_compared or not self.executed and case.is_recorded for case in cases]
        others = Counter(
            case.outcome for case, counts in zip(cases, counted, strict=True) if case.passed and not counts
        )
        label = "cases right" if self.executed else "cases launched, not executed"
        label += "".join(f", {count} {outcome}" for outcome, count in others.items())
        return label, f"{sum(counted)} of {len(cases)}"

    @property
    def executed(self) -> bool:
        """Whether values were compared: a compile-only pass says nothing of them."""
        return self.verify is not None and self.verify.ran_on not in ("", "compile")

    @property
    def median_us(self) -> float | None:
        """Median device time, None when there is none."""
        return self.benchmark.timings[0].median_us if self.benchmark and self.benchmark.timings else None

    @property
    def best_baseline(self) -> tuple[str, float] | None:
        """The baseline that is hardest to beat, and the candidate's speed-up over it."""
        known = [(name, ratio) for name, ratio in self.benchmark.speedups.items() if ratio] if self.benchmark else []
        return min(known, key=lambda item: item[1]) if known else None

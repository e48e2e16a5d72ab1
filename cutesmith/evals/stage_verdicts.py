"""Verdicts of stages as a run keeps them: whole, and with the fields that decide something as typed data."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from cutesmith.evals.records import Record, Timing
from cutesmith.verdicts import ExitCode


class _Whole(Record):
    """Keeps the fields that it does not name."""

    model_config = ConfigDict(extra="allow")


class StageTiming(_Whole, Timing):
    """One callable that a benchmark timed; `samples_us` is empty where it could not be, and `error` says why."""

    name: str
    mechanism: str = ""  # the limit that the error comes from (`Mechanism`)


class CompiledArch(_Whole):
    """One architecture that a kernel was compiled for."""

    compile_seconds: float = 0.0


class StageVerdict(_Whole):
    """What one stage said of one kernel; fields that a stage has not are empty."""

    stage: str = ""
    status: str
    exit_code: ExitCode
    summary: str = ""
    rule: str = ""
    mechanism: str = ""  # the check that found what is wrong (`Mechanism`)
    ran_on: str = ""
    archs: tuple[CompiledArch, ...] = ()
    timings: tuple[StageTiming, ...] = ()
    floor_us: float | None = None
    floor_kind: str = ""
    algorithmic_flops: int | None = None
    algorithmic_bytes: int | None = None


class TriedKernel(_Whole):
    """A kernel that the offline generator tried; `verify` is None where it did not come so far."""

    verify: StageVerdict | None = None


class GenerationVerdict(StageVerdict):
    """What the offline generator or a session said of its work; `ending` is None unless there was a session."""

    kernel: str = ""
    tried: tuple[TriedKernel, ...] = ()
    unmatched: str = ""
    ending: str | None = None
    model: str = ""
    dollars: float | None = None
    turns: int = 0
    usage: dict[str, int] = Field(default_factory=dict)


class Generation(Record):
    """The making of a kernel, as `generation.json` keeps it."""

    verdict: GenerationVerdict
    seconds: float = 0.0


class JudgedKernel(Record):
    """What is known of a kernel so far, as `verdicts/KEY.json` keeps it: verdicts and seconds by stage, the judge."""

    verdicts: dict[str, StageVerdict] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    worker: str = ""
    task: str = ""

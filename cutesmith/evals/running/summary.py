"""What a run came to, as its last verdict: counts, open attempts, how busy the GPUs were, what judging cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import ClassVar

from cutesmith.evals.reading import read_attempts
from cutesmith.evals.running.gpu_time import GpuUse
from cutesmith.evals.running.pipeline import OWN
from cutesmith.evals.running.plan import Tally
from cutesmith.evals.running.screen import one_line
from cutesmith.verdicts import ExitCode, Verdict

JUDGING = ("check", "verify", "benchmark")
OPEN_SHOWN = 20
OF_THE_TALLY = "total done solved cached cut_off lost_gpus interrupted".split()


@dataclass(frozen=True, kw_only=True)
class EvalVerdict(Verdict):
    """A run as it stands: exit code PASSED when every attempt has its line, whatever the kernels are worth.

    TIMED_OUT: --time-limit came first; UNAVAILABLE: some attempts could not be judged. `cut_off`: attempts that were
    on their way at the time limit; like all that have no line they are for --resume.
    `lost_gpus`: those that ceased to answer, as HOST:INDEX; others judged what they had.
    `judging_s`: seconds that judging one kernel took, without waiting for a GPU, and less its own compilation.
    """

    stage: ClassVar[str] = "eval"

    folder: str
    suite: str
    agent: str
    total: int
    done: int
    solved: int
    cached: int
    statuses: dict[str, int] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    cut_off: tuple[str, ...] = ()
    lost_gpus: dict[str, str] = field(default_factory=dict)
    gpu: GpuUse = GpuUse()
    judging_s: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def status(self) -> str:
        """`complete`, or that something is left for --resume."""
        return "complete" if self.passed else "incomplete"


def summarize(folder: Path, suite: str, agent: str, tally: Tally, gpu: GpuUse, seconds: float) -> EvalVerdict:
    """The verdict of a run's process."""
    code, summary = ExitCode.PASSED, f"{suite} by {agent}: {tally.done} of {tally.total} attempts judged"
    summary += f", {tally.solved} solved"
    if not tally.complete:
        late = f"out of time, {len(tally.cut_off)} ended on their way" if tally.cut_off else "out of time"
        why = "interrupted" if tally.interrupted else late if tally.out_of_time else "not all could be judged"
        summary += f"; {why}; go on with: cutesmith eval run --resume --out {folder}"
        code = ExitCode.TIMED_OUT if tally.out_of_time and not tally.open else ExitCode.UNAVAILABLE
    return EvalVerdict(
        exit_code=code,
        summary=summary,
        seconds=round(seconds, 1),
        folder=str(folder),
        suite=suite,
        agent=agent,
        **{name: getattr(tally, name) for name in OF_THE_TALLY},
        statuses=dict(tally.statuses.most_common()),
        open=dict(list(tally.open.items())[:OPEN_SHOWN]),
        gpu=gpu,
        judging_s=judging_seconds(folder),
    )


def judging_seconds(folder: Path) -> dict[str, float]:
    """Median, 90th percentile and most of what judging one kernel took beyond its own compilation, in seconds."""
    judged = (attempt.seconds for attempt in read_attempts(folder) if not attempt.cached)
    took = sorted(sum(s.get(stage, 0.0) for stage in JUDGING) - s.get(OWN, 0.0) for s in judged if "verify" in s)
    if not took:
        return {}
    deciles = quantiles(took, n=10, method="inclusive") if len(took) > 1 else [took[0]] * 9
    return {"median": round(deciles[4], 2), "p90": round(deciles[8], 2), "most": round(took[-1], 2)}


def lines(verdict: EvalVerdict) -> Iterator[str]:
    """The verdict for people."""
    counted = ", ".join(f"{count} {status}" for status, count in verdict.statuses.items())
    if counted:
        yield f"{counted}{f' ({verdict.cached} cached)' if verdict.cached else ''}"
    for unit, why in verdict.open.items():
        yield one_line(f"open: {unit}: {why}")
    for gpu, why in verdict.lost_gpus.items():
        yield one_line(f"lost: {gpu}: {why}")
    if verdict.gpu.busy is not None and verdict.gpu.timing is not None:
        busy, timing = 100 * verdict.gpu.busy, 100 * verdict.gpu.timing
        yield f"GPU held {busy:.0f} % of the wall time for judging, {timing:.0f} % for timing alone"
    if verdict.judging_s:
        took = verdict.judging_s
        yield f"judging one kernel, without compiling it: median {took['median']} s, 90th percentile {took['p90']} s"
    yield f"{verdict.summary} ({verdict.seconds:.0f} s)"

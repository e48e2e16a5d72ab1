"""A run as the scores see it: every task with its judged kernels, each with its raw samples and one of five outcomes.

| outcome  | which attempts                                                | what it counts as                      |
|----------|---------------------------------------------------------------|----------------------------------------|
| timed    | correct, kernel timed                                         | correct; fast by its speed-up          |
| untimed  | correct, kernel not timed (emulated GPU, benchmark failed)    | correct; fast for p = 0 alone          |
| failed   | a stage says no, or nothing was generated                     | not correct                            |
| rejected | the kernel cheats                                             | not correct                            |
| unjudged | machine unavailable, our own error, not executed, not decided | no sample; alone: a task not solved    |

A planned task without any attempt is not solved either: no denominator shrinks because something did not run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cutesmith.evals.reading import DamagedLine, PlannedTask, RunFacts, read_attempts, read_facts
from cutesmith.evals.records import COMPILED, EAGER, KERNEL, LIBRARY, Attempt, Machine, Timing
from cutesmith.evals.scores.estimators import Floats
from cutesmith.verdicts import ExitCode

TIMED, UNTIMED, FAILED, REJECTED, UNJUDGED = "timed", "untimed", "failed", "rejected", "unjudged"
OUTCOMES = (TIMED, UNTIMED, FAILED, REJECTED, UNJUDGED)
NOT_ATTEMPTED = "not attempted"
FASTEST = "fastest baseline"
BASELINES = (EAGER, COMPILED, LIBRARY, FASTEST)
NO_FACTS = RunFacts()
_SAYS_NOTHING = (ExitCode.UNAVAILABLE, ExitCode.INTERNAL, ExitCode.PASSED)


@dataclass(frozen=True, kw_only=True)
class Times:
    """Device time of one callable: the samples in microseconds, () float64 when it has none, and why not."""

    samples: Floats
    host_us: float | None = None
    error: str = ""

    @classmethod
    def of(cls, timing: Timing) -> Times:
        """The samples of a record; its median stands for them where it has none, as a single one."""
        known = timing.samples_us or ((timing.median_us,) if timing.median_us else ())
        samples = np.asarray(known, dtype=np.float64)
        return cls(samples=samples[samples > 0], host_us=timing.host_us, error=timing.error)

    @cached_property
    def median_us(self) -> float | None:
        """Median of the raw samples; None without any."""
        return float(np.median(self.samples)) if len(self.samples) else None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One judged kernel: its record without timings, and the timings as arrays."""

    attempt: Attempt
    outcome: str
    times: Mapping[str, Times]

    @classmethod
    def of(cls, attempt: Attempt) -> Outcome:
        """What an attempt came to."""
        times = {name: Times.of(timing) for name, timing in attempt.timings.items()}
        outcome = UNJUDGED if attempt.exit_code in _SAYS_NOTHING else FAILED
        if attempt.exit_code == ExitCode.REJECTED:
            outcome = REJECTED
        elif attempt.correct:
            outcome = TIMED if KERNEL in times and len(times[KERNEL].samples) else UNTIMED
        return cls(attempt=attempt.model_copy(update={"timings": {}}), outcome=outcome, times=times)

    @property
    def correct(self) -> bool:
        """Verified, and not found out afterwards."""
        return self.outcome in (TIMED, UNTIMED)

    def median_us(self, name: str = KERNEL) -> float | None:
        """Median time of the kernel or of a baseline, FASTEST for the least of the baselines."""
        if name == FASTEST:
            known = [m for other in self.times if other != KERNEL and (m := self.median_us(other)) is not None]
            return min(known, default=None)
        return self.times[name].median_us if name in self.times else None

    def speedup(self, baseline: str) -> float:
        """Median of the baseline over the kernel's; 0.0 for a wrong kernel, NaN for one without both times."""
        if not self.correct:
            return 0.0
        mine, theirs = self.median_us(), self.median_us(baseline)
        return theirs / mine if mine and theirs else float("nan")

    def floor_share(self) -> float | None:
        """Share of the roofline: the floor's time over the kernel's; None without both or for a wrong kernel."""
        mine, floor = self.median_us(), self.attempt.floor_us
        return floor / mine if self.correct and mine and floor else None

    def has_baseline(self, name: str) -> bool:
        """Whether the benchmark knew such a baseline, timed or not."""
        return name in self.times or (name == FASTEST and len(self.times) > 1)


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """One task of a run and what was made for it, () when it was not attempted."""

    task: PlannedTask
    outcomes: tuple[Outcome, ...] = ()

    @cached_property
    def judged(self) -> tuple[Outcome, ...]:
        """The samples that count."""
        return tuple(outcome for outcome in self.outcomes if outcome.outcome != UNJUDGED)

    @property
    def solved(self) -> bool:
        """Whether any kernel is correct."""
        return any(outcome.correct for outcome in self.outcomes)

    @property
    def share_correct(self) -> float:
        """Of the judged samples; 0 without any."""
        return sum(outcome.correct for outcome in self.judged) / max(1, len(self.judged))

    @cached_property
    def state(self) -> str:
        """The best of its outcomes, NOT_ATTEMPTED without any."""
        return min((o.outcome for o in self.outcomes), key=OUTCOMES.index, default=NOT_ATTEMPTED)

    def best(self, baseline: str = EAGER) -> Outcome | None:
        """Its fastest correct kernel against the baseline, else a correct one, else its last attempt."""
        return max(self.outcomes, key=lambda o: (o.correct, np.nan_to_num(o.speedup(baseline), nan=-1.0)), default=None)

    def speedups(self, baseline: str) -> Floats:
        """One number a judged sample, as `estimators.is_fast` takes them; a single 0 where nothing was judged."""
        return np.array([outcome.speedup(baseline) for outcome in self.judged] or [0.0])

    def lacks(self, baseline: str) -> bool:
        """Whether this task has no such baseline: of libraries `run.json` says it, else timed kernels show it."""
        timed = [outcome for outcome in self.outcomes if outcome.outcome == TIMED]
        if any(outcome.has_baseline(baseline) for outcome in timed):
            return False
        if baseline == LIBRARY and self.task.libraries is not None:
            return not self.task.libraries
        return bool(timed)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run's tasks in order of their ids; `superseded` attempts were made again later under the same sample number."""

    name: str
    folder: Path
    facts: RunFacts
    tasks: tuple[TaskResult, ...]
    damaged: tuple[DamagedLine, ...] = ()
    superseded: int = 0

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Every kernel of every task."""
        return [outcome for task in self.tasks for outcome in task.outcomes]

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """The machines that judged something, most used first."""
        seen = Counter(outcome.attempt.machine for outcome in self.outcomes)
        del seen[Machine()]
        return tuple(sorted(seen, key=lambda machine: (-seen[machine], machine.model_dump_json())))

    @property
    def devices(self) -> str:
        """The devices that it was judged on, by name; the emulated GPU is one."""
        named = sorted({machine.device for machine in self.machines} - {""})
        emulated = any(outcome.attempt.ran_on == "emulator" for outcome in self.outcomes)
        return ", ".join(named) or ("the emulated GPU" if emulated else "no device named")

    @property
    def tolerance(self) -> str:
        """The tolerance that all tasks were judged by, "" where each was by its own."""
        return str(self.facts.settings.get("tolerance") or "")

    @property
    def suites(self) -> tuple[str, ...]:
        """Names of the suites that the results are of."""
        known = {outcome.attempt.suite for outcome in self.outcomes} | {self.facts.suite}
        return tuple(sorted(known - {""}))

    @property
    def sources(self) -> tuple[str, ...]:
        """Who made the kernels."""
        return tuple(sorted({outcome.attempt.source for outcome in self.outcomes}))

    @property
    def finished(self) -> str:
        """When the last attempt was finished, "" when no line says so."""
        return max((outcome.attempt.finished for outcome in self.outcomes), default="")

    @cached_property
    def baselines(self) -> tuple[str, ...]:
        """The baselines that were timed for any kernel, in the order of BASELINES."""
        timed = {name for o in self.outcomes for name, times in o.times.items() if len(times.samples)} - {KERNEL}
        return tuple(name for name in BASELINES if name in timed or (name == FASTEST and len(timed) > 1))


def read_run(folder: Path, name: str = "") -> Run:
    """The run in a folder; raises UsageError when there is none."""
    damaged: list[DamagedLine] = []
    outcomes = map(Outcome.of, read_attempts(folder, damaged))
    return run_of(outcomes, read_facts(folder), folder=folder, name=name, damaged=damaged)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Runs by the names of their folders, or by the paths as given where two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return [read_run(folder, name if names.count(name) == 1 else str(folder)) for folder, name in zip(folders, names)]


def run_of(
    outcomes: Iterable[Outcome],
    facts: RunFacts = NO_FACTS,
    *,
    folder: Path = Path(),
    name: str = "",
    damaged: Iterable[DamagedLine] = (),
) -> Run:
    """Outcomes sorted into tasks, whatever their order; of two with the same sample number the later one counts."""
    latest, count = dict[tuple[str, str, int], Outcome](), 0
    for outcome in outcomes:
        attempt, count = outcome.attempt, count + 1
        before = latest.setdefault((attempt.task, attempt.source, attempt.sample), outcome)
        if attempt.finished >= before.attempt.finished:
            latest[attempt.task, attempt.source, attempt.sample] = outcome
    planned = {task.id: task for task in facts.tasks}
    by_task: dict[str, list[Outcome]] = {id: [] for id in planned}
    for key in sorted(latest):
        by_task.setdefault(key[0], []).append(latest[key])
    tasks = []
    for id, found in by_task.items():  # the results say what is known of a task; its libraries `run.json` alone
        task = planned.get(id) or PlannedTask(id=id)
        said = {name: getattr(found[0].attempt, name) for name in ("level", "tags", "dtypes")} if found else {}
        tasks.append(TaskResult(task=task.model_copy(update=said), outcomes=tuple(found)))
    return Run(
        name=name or folder.resolve().name,
        folder=folder,
        facts=facts,
        tasks=tuple(sorted(tasks, key=lambda result: result.task.id)),
        damaged=tuple(damaged),
        superseded=count - len(latest),
    )

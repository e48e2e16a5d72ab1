"""Two runs over the tasks that both have: what flipped, what changed its speed beyond noise, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutesmith.evals.records import EAGER
from cutesmith.evals.scores.estimators import (
    Floats,
    Interval,
    generator,
    interval,
    nan_mean,
    replicates_of,
    resampled_tasks,
    sign_test,
)
from cutesmith.evals.scores.matrices import LOG_SPEEDUP, task_matrices
from cutesmith.evals.scores.outcomes import Outcome, Run, TaskResult
from cutesmith.evals.scores.summaries import Score, among, exponential, is_a_point

TASKS_OWN = "each task's own"
SKILL = "skill"
"""Among what differs: how much of the skill the two runs' sessions had, as `RunFacts.skill` says it."""
OF_THE_SKILL = ("setting maker skill", "setting maker hidden_pages")
SOLVED = {"both": (True, True), "first": (True, False), "second": (False, True), "neither": (False, False)}
NOISE = 0.03
"""Change of a speed-up that two runs of the same kernel may show: medians of two runs agree within 3 %."""


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A task that only one of the two runs solved; the verdicts of both, in one line each."""

    task: str
    gained: bool
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """How a task's speed-up changed, second run over first, with the interval of its timing samples.

    `beyond_noise`: the interval leaves out 1 and the change is more than NOISE; samples of one run share clocks and
    temperature, so that their interval alone is too narrow for two runs.
    """

    task: str
    before: float
    after: float
    ratio: float
    interval: Interval
    beyond_noise: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The second run against the first.

    `solved`: tasks by ("both", "first", "second", "neither"); `share`: second's share of correct samples less the
    first's, a mean over tasks; `solved_p`: sign test over tasks whose share differs. `speed`: geometric mean of the
    ratios of speed-ups over the tasks that both timed; `speed_p`: sign test over these. `different`: settings and
    machines that differ, with both values; `other_device` when times cannot be compared at all.
    """

    first: str
    second: str
    baseline: str
    tasks: int
    only_first: int
    only_second: int
    solved: dict[str, int]
    share: Score
    solved_p: float
    flips: list[Flip]
    speed: Score
    speed_p: float
    changes: list[Change]
    different: dict[str, tuple[str, str]]
    other_device: bool


def compare_runs(first: Run, second: Run, baseline: str = EAGER, noise: float = NOISE) -> Comparison:
    """Compare task by task; tasks that only one run has are counted and left out."""
    mine, theirs = ({task.task.id: task for task in run.tasks} for run in (first, second))
    names = sorted(mine.keys() & theirs.keys())
    pairs = [(mine[name], theirs[name]) for name in names]
    changes, ratios = _changes(pairs, baseline, noise)
    solved = [(before.solved, after.solved) for before, after in pairs]
    shares = np.array([after.share_correct - before.share_correct for before, after in pairs])
    share = _paired(shares, np.broadcast_to(shares, (replicates_of(len(shares)), len(shares))))
    different = differences(first, second)
    return Comparison(
        first=first.name,
        second=second.name,
        baseline=baseline,
        tasks=len(names),
        only_first=len(mine) - len(names),
        only_second=len(theirs) - len(names),
        solved={name: sum(were == both for were in solved) for name, both in SOLVED.items()},
        share=among(share, -1.0, 1.0) if is_a_point(share) else share,  # all the same: that is not certain (`of_share`)
        solved_p=sign_test(int((shares > 0).sum()), int((shares < 0).sum())),
        flips=[
            Flip(task=old.task.id, gained=new.solved, before=verdict_line(old), after=verdict_line(new))
            for old, new in pairs
            if old.solved != new.solved
        ],
        speed=exponential(_paired(np.log([change.ratio for change in changes]), ratios)),
        speed_p=sign_test(sum(c.ratio > 1 for c in changes), sum(c.ratio < 1 for c in changes)),
        changes=sorted(changes, key=lambda change: change.ratio),
        different=different,
        other_device="device" in different,
    )


def verdict_line(task: TaskResult) -> str:
    """What became of a task, in one line."""
    best: Outcome | None = task.best()
    if best is None:
        return task.state
    said = " ".join(best.attempt.summary.split())
    return f"{best.attempt.stage}: {best.attempt.status}{f': {said}' if said else ''}"[:300]


def _changes(
    pairs: Sequence[tuple[TaskResult, TaskResult]], baseline: str, noise: float
) -> tuple[list[Change], Floats]:
    """The tasks that both timed, and the replicates of the logarithms of their ratios, shape (replicates, tasks)."""
    if not pairs:
        return [], np.empty((replicates_of(0), 0))
    before, after = (task_matrices(tasks, [baseline])[baseline] for tasks in zip(*pairs))
    ratios = after.values[LOG_SPEEDUP] - before.values[LOG_SPEEDUP]
    # The two runs' samples are independent: the same seed must not draw the same for both.
    drawn = after.replicates[LOG_SPEEDUP].astype(np.float64) - before.replicates[LOG_SPEEDUP][::-1]
    places = np.flatnonzero(np.isfinite(ratios))
    old, new = (np.exp(matrix.values[LOG_SPEEDUP]).tolist() for matrix in (before, after))
    changes = []
    for place in places.tolist():
        ratio, logs = new[place] / old[place], interval(drawn[:, place])
        low, high = (math.exp(bound) for bound in logs) if logs else (ratio, ratio)
        sure = (low > 1.0 or high < 1.0) and abs(math.log(ratio)) > math.log1p(noise)
        known = {"before": old[place], "after": new[place], "ratio": ratio, "interval": (low, high)}
        changes.append(Change(task=pairs[place][0].task.id, **known, beyond_noise=sure))
    return changes, drawn[:, places]


def _paired(values: Floats, replicates: Floats) -> Score:
    """The mean over tasks, drawn in pairs."""
    if not len(values):
        return Score(value=None)
    chosen = resampled_tasks(len(values), generator("pairs"), len(replicates))
    means = nan_mean(np.take_along_axis(replicates, chosen, axis=1))
    return Score(value=float(np.mean(values)), interval=interval(means), over=len(values))


def differences(first: Run, second: Run) -> dict[str, tuple[str, str]]:
    """Machine, versions, suite, tolerance and judge settings that differ, with both values.

    A value that one side does not know differs from none.
    """
    mine, theirs = _circumstances(first), _circumstances(second)
    return {
        name: (mine.get(name, ""), theirs.get(name, ""))
        for name in dict.fromkeys((*mine, *theirs))
        if mine.get(name) and theirs.get(name) and mine[name] != theirs[name]
    }


def _circumstances(run: Run) -> dict[str, str]:
    fields = ("device", "driver", "dsl", "torch", "cutesmith")
    machines = {field: sorted({getattr(machine, field) for machine in run.machines} - {""}) for field in fields}
    settings = {name: [value] for name, value in _flattened("setting", run.facts.settings) if name not in OF_THE_SKILL}
    ran_on = sorted({outcome.attempt.ran_on for outcome in run.outcomes} & {"gpu", "emulator"})
    listed = {**machines, "ran on": ran_on, "suite": list(run.suites), SKILL: [run.facts.skill], **settings}
    return {name: ", ".join(values) for name, values in listed.items()}


def _flattened(prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Settings by a name such as "setting judge rounds"."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flattened(f"{prefix} {name}", value)
        else:
            yield f"{prefix} {name}", str(value) or (TASKS_OWN if name == "tolerance" else "")

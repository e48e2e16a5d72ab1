"""fast_p over every p, with a band: one sorted pass a replicate instead of one a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutesmith.evals.scores.bootstrap import LEVEL, generator, replicates_of, resampled_tasks
from cutesmith.evals.scores.estimators import Floats
from cutesmith.evals.scores.matrices import Resampled
from cutesmith.evals.scores.outcomes import TaskResult

MOST_REPLICATES = 300


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Share of all tasks that is faster than each p; `low` and `high` are the 95 % band, all of the shape of `p`."""

    p: Floats
    share: Floats
    low: Floats
    high: Floats
    tasks: int


def fast_curve(tasks: Sequence[TaskResult], baseline: str, p: Floats, seed: str) -> Curve:
    """fast_p for every p > 0, ascending, over the tasks that have such a baseline."""
    inside = [task for task in tasks if not task.lacks(baseline)]
    if not inside:
        return Curve(p=p, share=np.zeros_like(p), low=np.zeros_like(p), high=np.zeros_like(p), tasks=0)
    count = min(MOST_REPLICATES, replicates_of(len(inside)))
    owners, weights, speedups = _samples(inside, baseline, count)
    drawn = resampled_tasks(len(inside), generator("tasks", seed), count)
    times = np.array([np.bincount(chosen, minlength=len(inside)) for chosen in drawn])
    shares = np.array([_share(own, weights * times[row, owners], p) for row, own in enumerate(speedups[:, 1:].T)])
    low, high = np.quantile(shares / len(inside), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    share = _share(speedups[:, 0], weights, p) / len(inside)
    return Curve(p=p, share=share, low=low, high=high, tasks=len(inside))


def _samples(tasks: Sequence[TaskResult], baseline: str, count: int) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Of each judged sample its task's place, its weight within the task, and its speed-up followed by replicates."""
    owned = [(place, len(task.judged), outcome) for place, task in enumerate(tasks) for outcome in task.judged]
    speedups = np.empty((len(owned), count + 1))
    for row, (_, _, outcome) in zip(speedups, owned):
        row[:] = np.append(outcome.speedup(baseline), Resampled(outcome, count).speedups(baseline))
    owners, judged = (np.array([item[column] for item in owned], dtype=np.intp) for column in (0, 1))
    return owners, 1 / judged, np.nan_to_num(speedups, nan=0.0)


def _share(speedups: Floats, weights: Floats, p: Floats) -> Floats:
    """Sum of the weights of what is faster than each p."""
    order = np.argsort(speedups)
    above = np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)
    share: Floats = above[np.searchsorted(speedups[order], p, side="right")]
    return share

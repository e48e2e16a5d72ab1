"""Per-task statistics of a run as arrays, their replicates with timing samples drawn again, and the curve of fast_p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cutesmith.evals.records import KERNEL
from cutesmith.evals.scores.estimators import (
    LEVEL,
    THRESHOLDS,
    Floats,
    generator,
    is_fast,
    nan_mean,
    replicates_of,
    resampled_medians,
    resampled_tasks,
)
from cutesmith.evals.scores.outcomes import FASTEST, TIMED, Outcome, TaskResult


@dataclass(frozen=True)
class TaskMatrix:
    """Statistics of tasks against one baseline; the last axis is the tasks, NaN where a task has no such value.

    `values` has shape (statistics, tasks) and `replicates` (statistics, replicates, tasks). The statistics: the share
    of the task's judged samples that is fast at each of THRESHOLDS, the mean logarithm of the speed-up over its correct
    timed samples, and the mean share of the floor over the same.
    """

    values: Floats
    replicates: NDArray[np.float32]

    def of(self, places: NDArray[np.intp]) -> TaskMatrix:
        """The same for some of the tasks."""
        return TaskMatrix(self.values[:, places], self.replicates[:, :, places])


LOG_SPEEDUP, FLOOR = len(THRESHOLDS), len(THRESHOLDS) + 1


def task_matrices(tasks: Sequence[TaskResult], baselines: Sequence[str]) -> dict[str, TaskMatrix]:
    """Every task's statistics against each baseline; each kernel's times are drawn again once for all of them."""
    count = replicates_of(len(tasks))
    empty = [
        (np.empty((FLOOR + 1, len(tasks))), np.empty((FLOOR + 1, count, len(tasks)), np.float32)) for _ in baselines
    ]
    for place, task in enumerate(tasks):
        drawn = [Resampled(outcome, count) for outcome in task.judged]
        for baseline, (values, replicates) in zip(baselines, empty):
            known = [np.array([share]) for o in task.judged if (share := o.floor_share()) is not None]
            values[:, place] = _statistics(task.speedups(baseline)[:, None], known)[:, 0]
            speedups = np.array([sample.speedups(baseline) for sample in drawn] or [np.zeros(count)])
            floors = [sample.floor_shares() for sample in drawn if sample.outcome.floor_share() is not None]
            replicates[:, :, place] = _statistics(speedups, floors)
    return {baseline: TaskMatrix(*arrays) for baseline, arrays in zip(baselines, empty)}


def _statistics(speedups: Floats, floors: Sequence[Floats]) -> Floats:
    """Shape (statistics, replicates) for speed-ups of shape (samples, replicates)."""
    fast = [is_fast(speedups, p).mean(axis=0) for p in THRESHOLDS]
    logs = np.log(np.where(speedups > 0, speedups, np.nan))
    floor = np.mean(floors, axis=0) if floors else np.full(speedups.shape[1], np.nan)
    return np.array([*fast, nan_mean(logs, axis=0), floor])


@dataclass(frozen=True)
class Resampled:
    """One kernel with its times drawn again: medians in microseconds, shape (replicates,), by callable."""

    outcome: Outcome
    count: int

    @cached_property
    def medians(self) -> dict[str, Floats]:
        """Replicates of every callable that has samples, from random numbers of this kernel alone."""
        attempt = self.outcome.attempt
        draws = generator("timings", attempt.task, attempt.source, str(attempt.sample), attempt.key)
        known = {name: times.samples for name, times in sorted(self.outcome.times.items()) if len(times.samples)}
        return {name: resampled_medians(samples, draws, self.count) for name, samples in known.items()}

    def speedups(self, baseline: str) -> Floats:
        """Replicates of the speed-up: all 0 for a wrong kernel, all NaN without both times."""
        if not self.outcome.correct:
            return np.zeros(self.count)
        theirs = self.baseline(baseline)
        if self.outcome.outcome != TIMED or theirs is None:
            return np.full(self.count, np.nan)
        return theirs / self.medians[KERNEL]

    def baseline(self, name: str) -> Floats | None:
        """Replicates of a baseline's median; of FASTEST the least of all of them in each replicate."""
        if name != FASTEST:
            return self.medians.get(name)
        known = [medians for other, medians in self.medians.items() if other != KERNEL]
        return np.min(known, axis=0) if known else None

    def floor_shares(self) -> Floats:
        """Replicates of the share of the roofline where it is known; the floor itself is one measured number."""
        return (self.outcome.attempt.floor_us or np.nan) / self.medians[KERNEL]


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

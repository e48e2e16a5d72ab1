"""Per-task statistics of a run as arrays: the values, and their replicates with timing samples drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cutesmith.evals.records import KERNEL
from cutesmith.evals.scores.bootstrap import generator, replicates_of, resampled_medians
from cutesmith.evals.scores.estimators import THRESHOLDS, Floats, is_fast, nan_mean
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

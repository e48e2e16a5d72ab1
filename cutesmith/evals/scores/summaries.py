"""A statistic with its interval, for some tasks of a matrix: the tasks are drawn again, each with its drawn times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from cutesmith.evals.scores.estimators import (
    LEVEL,
    THRESHOLDS,
    Floats,
    Interval,
    generator,
    interval,
    nan_mean,
    nan_median,
    replicates_of,
    resampled_tasks,
)
from cutesmith.evals.scores.matrices import FLOOR, LOG_SPEEDUP, TaskMatrix


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number, its bootstrap 95 % interval, and over how many tasks it was taken; None where there is none."""

    value: float | None
    interval: Interval | None = None
    over: int = 0


NO_SCORE = Score(value=None)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """fast_p by p, geometric mean and median of the speed-up, median share of the floor."""

    fast: Mapping[float, Score]
    geometric_mean: Score
    median: Score
    floor: Score


def summarise(matrix: TaskMatrix, seed: str) -> Summary:
    """The statistics over all tasks of the matrix; equal seeds draw equal tasks."""
    tasks = matrix.values.shape[1]
    values = replicates = _statistics(matrix.values)
    if tasks:
        chosen = resampled_tasks(tasks, generator("tasks", seed), matrix.replicates.shape[1])
        drawn = np.take_along_axis(matrix.replicates, np.broadcast_to(chosen, matrix.replicates.shape), axis=2)
        replicates = _statistics(drawn)
    rows = (LOG_SPEEDUP, LOG_SPEEDUP, FLOOR)
    over = [tasks] * len(THRESHOLDS) + [int(np.isfinite(matrix.values[row]).sum()) for row in rows]
    scores = [
        Score(value=float(value), interval=interval(known), over=count) if count and np.isfinite(value) else NO_SCORE
        for value, known, count in zip(values, replicates, over)
    ]
    fast = dict(zip(THRESHOLDS, map(of_share, scores)))
    return Summary(fast=fast, geometric_mean=scores[-3], median=scores[-2], floor=scores[-1])


def _statistics(values: NDArray[np.floating]) -> list[Floats]:
    """Every statistic over the last axis of (statistics, …, tasks)."""
    logs = values[LOG_SPEEDUP]
    shares = [nan_mean(values[place]) for place in range(len(THRESHOLDS))]
    return [*shares, np.exp(nan_mean(logs)), np.exp(nan_median(logs)), nan_median(values[FLOOR])]


def score_of_tasks(values: Floats, seed: str) -> Score:
    """The mean of one number a task, with an interval over tasks alone."""
    if not len(values):
        return NO_SCORE
    chosen = resampled_tasks(len(values), generator("tasks", seed), replicates_of(len(values)))
    return Score(value=float(values.mean()), interval=interval(values[chosen].mean(axis=1)), over=len(values))


def of_share(score: Score) -> Score:
    """A share of tasks, from 0 to 1: where all have the same, drawing them again says "certain".

    `among` stands for it: 10 of 10 is 72 to 100 %.
    """
    return among(score, 0.0, 1.0) if is_a_point(score) else score


def is_a_point(score: Score) -> bool:
    """Whether every drawing of the tasks gave the same."""
    return score.interval is not None and score.interval[1] - score.interval[0] < 1e-12


def among(score: Score, least: float, most: float) -> Score:
    """The interval of a number that all of n tasks have, where so many others as Wilson allows have the extremes.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927), for 0 of n.
    """
    assert score.value is not None
    slack = _Z_SQUARED / (score.over + _Z_SQUARED)
    low, high = score.value + slack * (least - score.value), score.value + slack * (most - score.value)
    return replace(score, interval=(low, high))


_Z_SQUARED = NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2


def exponential(score: Score) -> Score:
    """A score of logarithms as one of factors."""
    if score.value is None or score.interval is None:
        return score
    low, high = (math.exp(bound) for bound in score.interval)
    return replace(score, value=math.exp(score.value), interval=(low, high))

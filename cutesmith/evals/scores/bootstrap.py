"""Bootstrap intervals: tasks are drawn again, and within a task the raw timing samples; seeded, hence always the same.

Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 6, 8 and 13: percentile intervals.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from cutesmith.evals.scores.estimators import Floats

REPLICATES = 1000
MOST_CELLS = 1_000_000
FEWEST_REPLICATES = 200
LEVEL = 0.95
Interval = tuple[float, float]


def replicates_of(tasks: int) -> int:
    """How many replicates are drawn: 1000 up to 1000 tasks, then fewer for the memory's sake, never below 200."""
    return int(np.clip(MOST_CELLS // max(tasks, 1), FEWEST_REPLICATES, REPLICATES))


def generator(*names: str) -> np.random.Generator:
    """Random numbers that depend on the names alone: the order in which results are read changes nothing."""
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def resampled_medians(samples: Floats, draws: np.random.Generator, replicates: int = REPLICATES) -> Floats:
    """Medians of `replicates` resamples of the samples, microseconds, shape (replicates,).

    The k-th smallest of n draws with replacement is the sample at ceil(n U), U the k-th smallest of n uniform numbers:
    Beta(k, n - k + 1). One draw replaces n of them. For an even n the upper of the two middle ones is drawn given
    the lower.
    """
    ordered = np.sort(samples)
    count = len(ordered)
    lower = (count + 1) // 2
    place = draws.beta(lower, count - lower + 1, replicates)
    chosen: Floats = ordered[_index(place, count)]
    if count % 2:
        return chosen
    above = place + (1.0 - place) * draws.beta(1, count - lower, replicates)
    return (chosen + ordered[_index(above, count)]) / 2


def _index(place: Floats, count: int) -> NDArray[np.intp]:
    return np.clip(np.ceil(place * count).astype(np.intp) - 1, 0, count - 1)


def resampled_tasks(count: int, draws: np.random.Generator, replicates: int = REPLICATES) -> NDArray[np.intp]:
    """Which tasks each replicate holds, shape (replicates, count)."""
    return draws.integers(0, count, (replicates, count))


def interval(replicates: NDArray[np.floating], level: float = LEVEL) -> Interval | None:
    """Percentile interval of the replicates that have a value; None where none has."""
    known = replicates[np.isfinite(replicates)]
    if not len(known):
        return None
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)

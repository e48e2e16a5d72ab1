"""The formulas (fast_p, pass@k, best@k, exact sign test) and bootstrap intervals: plain numbers in and out.

Bootstrap: tasks are drawn again, and within a task the raw timing samples; seeded, hence always the same. Efron and
Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 6, 8 and 13: percentile intervals.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The values of p that every table shows."""


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that one of k samples out of `samples`, drawn without replacement, is among the `correct`.

    1 - C(n - c, k) / C(n, k), the unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on
    Code", arXiv:2107.03374, equation 1. Raises ValueError unless 0 <= correct <= samples and 1 <= k <= samples.
    """
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {correct} correct among {samples} samples")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def best_at_k(values: Sequence[float], k: int) -> float:
    """The expected largest of k of the values, drawn without replacement; raises ValueError unless 1 <= k <= count.

    The r-th smallest of n values is the largest of a draw in C(r - 1, k - 1) of C(n, k) cases.
    """
    if not 1 <= k <= len(values):
        raise ValueError(f"the best of {k} among {len(values)} values")
    draws = math.comb(len(values), k)
    return sum(value * (math.comb(rank, k - 1) / draws) for rank, value in enumerate(sorted(values)) if rank >= k - 1)


def is_fast(speedups: Floats, p: float) -> NDArray[np.bool_]:
    """Which kernels are correct and more than p times as fast as the baseline: fast_p is their share.

    `speedups`: 0 for a kernel that is not correct, NaN for a correct one without a time, which counts for p = 0 alone.
    The comparison is strict and the denominator is all of them, as in KernelBench: Ouyang et al., "KernelBench: Can
    LLMs Write Efficient GPU Kernels?", arXiv:2502.10517, and `fastp` of its src/score.py.
    """
    fast: NDArray[np.bool_] = (speedups > p) | (np.isnan(speedups) & (p == 0.0))
    return fast


def nan_mean(values: NDArray[np.floating], axis: int = -1) -> Floats:
    """Mean of what is a number, NaN where nothing is."""
    known = np.isfinite(values)
    total, count = np.where(known, values, 0.0).sum(axis=axis, dtype=np.float64), known.sum(axis=axis)
    mean: Floats = np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)
    return mean


def nan_median(values: NDArray[np.floating]) -> Floats:
    """Median over the last axis of what is a number, NaN where nothing is."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    ordered, count = np.sort(values, axis=-1).astype(np.float64), np.isfinite(values).sum(axis=-1, keepdims=True)
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, values.shape[-1] - 1)
    middle = np.take_along_axis(ordered, low, -1) + np.take_along_axis(ordered, high, -1)
    median: Floats = np.where(count > 0, middle / 2, np.nan)[..., 0]
    return median


def sign_test(above: int, below: int) -> float:
    """Two-sided p-value of so many signs under a fair coin, exact; 1.0 without any sign. Ties are left out before."""
    trials = above + below
    tail = sum(math.comb(trials, count) for count in range(min(above, below) + 1))
    return min(1.0, float(2 * tail / 2**trials))


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

"""The formulas: fast_p, pass@k, best@k, exact sign test. Plain numbers in, plain numbers out."""

from __future__ import annotations

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

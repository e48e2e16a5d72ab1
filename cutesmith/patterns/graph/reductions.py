"""What each reduction of the graph means, as torch functions; the reduced dimensions stay as size 1."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Dims = tuple[int, ...]
Reduction = Callable[[torch.Tensor, Dims, float], torch.Tensor]


def _one_by_one(function: Callable[..., torch.Tensor]) -> Reduction:
    """For functions that reduce one dimension a call."""

    def reduce(x: torch.Tensor, dims: Dims, _: float) -> torch.Tensor:
        for dim in dims:
            x = function(x, dim, keepdim=True)
        return x

    return reduce


def _at_once(function: Callable[..., torch.Tensor]) -> Reduction:
    """For functions that take a tuple of dimensions, and every dimension for an empty one."""
    return lambda x, dims, _: function(x, dims, keepdim=True) if dims else x


def _first_index(function: Callable[..., torch.Tensor]) -> Reduction:
    """The index in the flattened reduced dimensions."""

    def reduce(x: torch.Tensor, dims: Dims, _: float) -> torch.Tensor:
        if not dims:
            return torch.zeros_like(x, dtype=torch.int64)
        kept = [dim for dim in range(x.ndim) if dim not in dims]
        flat = x.permute(*kept, *dims).reshape(*(x.shape[dim] for dim in kept), -1)
        return function(flat, dim=-1).reshape([1 if dim in dims else size for dim, size in enumerate(x.shape)])

    return reduce


def _truth(function: Callable[..., torch.Tensor]) -> Reduction:
    return lambda x, dims, _: _one_by_one(function)(x.to(torch.bool), dims, 0.0)


def _variance(x: torch.Tensor, dims: Dims, correction: float) -> torch.Tensor:
    mean = torch.mean(x, dims, keepdim=True) if dims else x
    total = torch.sum((x - mean) ** 2, dims, keepdim=True) if dims else torch.zeros_like(x)
    return total / max(math.prod(x.shape[dim] for dim in dims) - correction, 0.0)


REDUCTIONS: dict[str, Reduction] = {
    "sum": _at_once(torch.sum),
    "mean": _at_once(torch.mean),
    "max": _at_once(torch.amax),
    "min": _at_once(torch.amin),
    "prod": _one_by_one(torch.prod),
    "any": _truth(torch.any),
    "all": _truth(torch.all),
    "argmax": _first_index(torch.argmax),
    "argmin": _first_index(torch.argmin),
    "var": _variance,
}
"""Reduction name → function of a tensor, its dimensions and the correction of `var`. `argmax` and `argmin` give the
first index and treat NaN as the extreme, as PyTorch does."""

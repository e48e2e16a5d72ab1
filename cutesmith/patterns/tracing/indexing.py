"""Decompositions of what counts, places or repeats elements by values of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cutesmith.patterns.graph.shapes import broadcast


def _bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> Any:
    """Counts of the values below `minlength`, which is the result's length as long as no value is larger."""
    if minlength <= 0:
        return NotImplemented
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    total = torch.zeros(minlength, dtype=dtype, device=x.device)
    return total.index_add(0, x.long(), torch.ones_like(x, dtype=dtype) if weights is None else weights.to(dtype))


def _masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The next element of `source` at each place that the mask takes."""
    shape = broadcast([tuple(x.shape), tuple(mask.shape)])
    x, mask = x.expand(shape), mask.expand(shape)
    place = mask.flatten().to(torch.int64).cumsum(0).sub(1).clamp(0, max(0, source.numel() - 1))
    return torch.where(mask, source.flatten()[place].view(x.shape), x)


def _put(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    return x.flatten().index_put([index.flatten()], source.flatten(), accumulate).view(x.shape)


def _diagonal_scatter(x: torch.Tensor, source: torch.Tensor, *where: int) -> torch.Tensor:
    result = x.clone(memory_format=torch.contiguous_format)
    result.diagonal(*where).copy_(source)
    return result


def _nonzero_static(x: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """The places of the first `size` elements that are not 0, one row each; what is beyond goes to a row left out."""
    chosen = (x != 0).flatten()
    row = torch.where(chosen, chosen.to(torch.int64).cumsum(0) - 1, size).clamp(max=size)
    place = torch.arange(chosen.numel(), device=x.device)
    flat = torch.full((size + 1,), -1, dtype=torch.int64, device=x.device).scatter(0, row, place)[:size]
    columns, step = [], 1
    for length in reversed(x.shape):
        columns.append(torch.where(flat < 0, fill_value, flat // step % length))
        step *= length
    return torch.stack(columns[::-1], 1) if columns else flat.new_empty((size, 0))


def _repeated(repeats: torch.Tensor, *, output_size: int | None = None) -> Any:
    """For each place of the result the place that it repeats; its length is known where the caller tells it."""
    if output_size is None:
        return NotImplemented
    places = torch.arange(output_size, dtype=repeats.dtype, device=repeats.device)
    return torch.searchsorted(repeats.cumsum(0, dtype=repeats.dtype), places, right=True).to(repeats.dtype)


aten = torch.ops.aten
ASSUMED: dict[Any, str] = {
    aten.bincount.default: "what `bincount` counts is less than minlength (a larger value would lengthen the result)",
    aten.repeat_interleave.Tensor: "what `repeat_interleave` repeats comes to its output_size",
}
"""What a decomposition takes for granted of values, since the shape of a kernel's result cannot follow from them."""
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.bincount.default: _bincount,
    aten.masked_scatter.default: _masked_scatter,
    aten.put.default: _put,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.nonzero_static.default: _nonzero_static,
    aten.repeat_interleave.Tensor: _repeated,
}

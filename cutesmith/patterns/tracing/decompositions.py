"""What PyTorch's own decompositions compute otherwise than its kernels do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

BILINEAR, NEAREST = 0, 1
ZEROS = 0
CUDNN_CHANNELS = 1024  # of an image, at most: with zeros around and aligned corners PyTorch lets cuDNN sample it


def decomposition_of(func: Any, *, composite: bool) -> Callable[..., Any] | None:
    """Ours where there is one, else PyTorch's, None without either; a `composite` operation is made of others."""
    from torch._decomp import decomposition_table

    return _OURS.get(func) or (func.decompose if composite else decomposition_table.get(func))


def arguments_without_values(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that give tensors without values the shapes and types that PyTorch's kernels give to others."""
    change = _ARGUMENTS.get(func)
    return change(*args) if change else args


def _counted_from_the_first(x: torch.Tensor, order: float = 2, dims: Any = None, *more: Any) -> tuple[Any, ...]:
    """PyTorch 2.11's decomposition of a norm keeps dimensions of size 1 that are counted from the last."""
    return x, order, dims and [dim % max(1, x.dim()) for dim in dims], *more


def _of_one_type(x: torch.Tensor, target: torch.Tensor, *more: Any) -> tuple[Any, ...]:
    """The kernels of some losses give the type of `x`; their decompositions promote it with that of `target`."""
    return x, target.to(x.dtype), *more


def _lstm(x: torch.Tensor, states: list[torch.Tensor], *args: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """PyTorch 2.11's decomposition leaves a dimension of 1 in the last states: they have the shapes of the first."""
    out, *last = _LSTM.decompose(x, states, *args)
    hidden, cell = (end if end.shape == start.shape else end.view(start.shape) for end, start in zip(last, states))
    return out, hidden, cell


def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The last of the k smallest; NaN is larger than any number."""
    if not x.dim():
        return x.clone(), x.argmax()
    values, places = (found.narrow(dim, k - 1, 1) for found in torch.topk(x, k, dim, largest=False))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _median(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower of the two in the middle; NaN where there is one, the first of them."""
    values, places = _kthvalue(x, (x.shape[dim] + 1) // 2 if x.dim() else 1, dim, keepdim)
    if not x.is_floating_point():
        return values, places
    first = x.isnan().to(torch.int32).max(dim, keepdim)
    return torch.where(first.values > 0, torch.nan, values), torch.where(first.values > 0, first.indices, places)


def _grid_sampler_2d(
    image: torch.Tensor, grid: torch.Tensor, interpolation: int = 0, padding: int = 0, align_corners: bool = False
) -> torch.Tensor:
    """Points outside of the image are left out; PyTorch's decomposition gives a corner of the image the weight 0.

    An infinity in that corner would become NaN. Other paddings and cubic interpolation never leave the image out.
    """
    if (
        padding != ZEROS
        or interpolation not in (BILINEAR, NEAREST)
        or image.dtype not in (torch.float32, torch.float64)
    ):
        from torch._decomp import decomposition_table

        return decomposition_table[_GRID_SAMPLER](image, grid, interpolation, padding, align_corners)  # type: ignore[no-any-return]
    batch, channels, *sizes = image.shape
    places = [_place(grid[..., dim].unsqueeze(1), sizes[1 - dim], align_corners) for dim in (1, 0)]
    lines = torch.arange(batch, device=image.device).view(-1, 1, 1, 1)
    planes = torch.arange(channels, device=image.device).view(1, -1, 1, 1)

    def seen(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        inside = (y >= 0) & (y < sizes[0]) & (x >= 0) & (x < sizes[1])
        at_y, at_x = (torch.where(inside, place, 0).long() for place in (y, x))
        value = image[lines, planes, at_y, at_x]
        return torch.where(inside, value if weight is None else value * weight, 0.0)

    if interpolation == NEAREST:
        return seen(places[0].round(), places[1].round(), None)
    (top, low), (left, right) = ((place.floor(), place.floor() + 1) for place in places)
    (y, x) = places
    total = (
        seen(top, left, (low - y) * (right - x))
        + seen(top, right, (low - y) * (x - left))
        + seen(low, left, (y - top) * (right - x))
        + seen(low, right, (y - top) * (x - left))
    )
    by_cudnn = align_corners and channels <= CUDNN_CHANNELS  # its weights are NaN where a coordinate is not finite
    return torch.where(y.isfinite() & x.isfinite(), total, torch.nan) if by_cudnn else total


def _place(coordinate: torch.Tensor, size: int, align_corners: bool) -> torch.Tensor:
    """From -1 … 1 to 0 … size - 1, or to the outer edges of the first and the last element."""
    return coordinate * ((size - 1) / 2 if align_corners else size / 2) + (size - 1) / 2


def _col2im(
    x: torch.Tensor, size: list[int], taps: list[int], dilation: list[int], padding: list[int], stride: list[int]
) -> torch.Tensor:
    """Each tap's columns are added to the places that it was read from; PyTorch has no decomposition of it."""
    *batch, rows, _ = x.shape
    channels, wide = rows // math.prod(taps), [each + 2 * around for each, around in zip(size, padding)]
    spans = [apart * (count - 1) for apart, count in zip(dilation, taps)]
    positions = [(each - span - 1) // step + 1 for each, span, step in zip(wide, spans, stride)]
    columns, out = x.view(*batch, channels, *taps, *positions), x.new_zeros(*batch, channels, *wide)
    rest = [slice(None)] * len(size)
    for tap in itertools.product(*map(range, taps)):
        starts = [place * apart for place, apart in zip(tap, dilation)]
        ends = [start + step * (count - 1) + 1 for start, step, count in zip(starts, stride, positions)]
        places: list[Any] = [..., *map(slice, starts, ends, stride)]
        columns_of_tap: list[Any] = [..., *tap, *rest]
        out[tuple(places)] += columns[tuple(columns_of_tap)]
    image: list[Any] = [..., *(slice(around, around + each) for around, each in zip(padding, size))]
    return out[tuple(image)]


def _trilinear(
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    first_lacks: list[int],
    second_lacks: list[int],
    third_lacks: list[int],
    sums: list[int],
    unroll: int = 1,
) -> torch.Tensor:
    """Two of the factors as a product of matrices, where the third lacks a dimension that is summed over."""
    rank = first.dim() + len(first_lacks)
    names = [[dim for dim in range(rank) if dim not in lacks] for lacks in (first_lacks, second_lacks, third_lacks)]
    inner = [dim for dim in range(rank) if dim not in sums or dim in names[2]]
    product = torch.einsum(first, names[0], second, names[1], inner)
    return torch.einsum(product, inner, third, names[2], [dim for dim in range(rank) if dim not in sums])


_GRID_SAMPLER = torch.ops.aten.grid_sampler_2d.default
_LSTM = torch.ops.aten.lstm.input
_ARGUMENTS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.ops.aten.linalg_vector_norm.default: _counted_from_the_first,
    torch.ops.aten.huber_loss.default: _of_one_type,
    torch.ops.aten.soft_margin_loss.default: _of_one_type,
}
_OURS: dict[Any, Callable[..., Any]] = {
    _GRID_SAMPLER: _grid_sampler_2d,
    _LSTM: _lstm,
    torch.ops.aten._is_all_true.default: lambda x: x.all(),
    torch.ops.aten._trilinear.default: _trilinear,
    torch.ops.aten.col2im.default: _col2im,
    torch.ops.aten.kthvalue.default: _kthvalue,
    torch.ops.aten.median.dim: _median,
    torch.ops.aten.median.default: lambda x: _median(x.flatten(), 0)[0],
}

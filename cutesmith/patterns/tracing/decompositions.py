"""What PyTorch's own decompositions compute otherwise than its kernels do."""

from __future__ import annotations

import functools
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
    """At each place of the image the sum of what the windows over it have there; PyTorch has no decomposition."""
    *batch, rows, _ = x.shape
    channels = rows // math.prod(taps)
    spans = [apart * (count - 1) + 1 for apart, count in zip(dilation, taps)]
    ends = [each + 2 * around - span for each, around, span in zip(size, padding, spans)]
    positions = [end // step + 1 for end, step in zip(ends, stride)]
    columns, total = x.view(*batch, channels, *taps, *positions), x.new_zeros(())
    for turns in itertools.product(*(range(-(-span // step)) for span, step in zip(spans, stride))):
        at_taps, at_windows, inside = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()
        for dim, turn in enumerate(turns):
            place = torch.arange(size[dim], device=x.device).view([-1] + [1] * (len(size) - 1 - dim)) + padding[dim]
            window = place // stride[dim] - turn  # of the windows over a place the last, the one before, …
            beyond = place - window * stride[dim]
            tap = beyond // dilation[dim]
            inside += [beyond % dilation[dim] == 0, tap < taps[dim], window >= 0, window < positions[dim]]
            at_taps.append(tap.clamp(0, taps[dim] - 1))
            at_windows.append(window.clamp(0, positions[dim] - 1))
        index: list[Any] = [*[slice(None)] * (len(batch) + 1), *at_taps, *at_windows]
        total = total + torch.where(functools.reduce(torch.logical_and, inside), columns[tuple(index)], 0)
    return total


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


def _cdist(a: torch.Tensor, b: torch.Tensor, order: float, mode: int | None = None) -> torch.Tensor:
    """Norms of differences; PyTorch multiplies matrices for many rows, where small distances cancel."""
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), order, -1)  # type: ignore[no-any-return]


def _fake_quantized(x: torch.Tensor, scale: Any, zero: Any, least: int, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounded to a grid, and which numbers lay within its ends."""
    place = torch.round(x * (1.0 / scale)) + zero
    return ((place.clamp(least, most) - zero) * scale).to(x.dtype), (place >= least) & (place <= most)


def _fake_quantized_channels(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, dim: int, least: int, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = [-1 if at == dim % x.dim() else 1 for at in range(x.dim())]
    return _fake_quantized(x, scale.view(shape), zero.view(shape), least, most)


def _fake_quantized_by_tensors(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, enabled: torch.Tensor, least: int, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    value, inside = _fake_quantized(x, scale, zero, least, most)
    return torch.where(enabled > 0, value, x), inside | (enabled <= 0)


def _quantile(
    x: torch.Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    """Between the two sorted elements that lie around the place; NaN where a line has one."""
    if interpolation != "linear":
        return NotImplemented
    lines = x.flatten() if dim is None else x.movedim(dim, -1)
    place = (q if isinstance(q, torch.Tensor) else x.new_full((), q)) * (lines.shape[-1] - 1)
    ordered = lines.sort(-1).values
    below, above = (ordered[..., end.long().flatten()] for end in (place.floor(), place.ceil()))
    values = torch.lerp(below, above, (place - place.floor()).flatten())
    values = torch.where(lines.isnan().any(-1, keepdim=True), torch.nan, values)
    found = values.movedim(-1, 0).reshape(*place.shape, *values.shape[:-1])
    if not keepdim:
        return found
    if dim is None:
        return found.reshape(*place.shape, *[1] * x.dim())
    return found.unsqueeze(dim if dim < 0 else dim + place.dim())


def _cov(x: torch.Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Of rows; PyTorch looks at a value to warn where there are too few columns."""
    if fweights is not None or aweights is not None:
        return NotImplemented
    rows = x.reshape(-1, x.shape[-1] if x.dim() else 1)
    apart = rows - rows.mean(1, keepdim=True)
    return (apart @ apart.mT / max(0, rows.shape[1] - correction)).squeeze()


def _fill_diagonal(x: torch.Tensor, value: float, wrap: bool = False) -> Any:
    if x.dim() != 2 or (wrap and x.shape[0] > x.shape[1]):
        return NotImplemented
    x.diagonal().fill_(value)
    return x


def _cofactors(a: torch.Tensor) -> list[list[torch.Tensor]] | None:
    """Those of matrices of up to 3 rows, row by row; None for larger ones."""
    size = a.shape[-1]
    if not 1 <= size <= 3:
        return None
    entry = [[a[..., row, column] for column in range(size)] for row in range(size)]
    if size == 1:
        return [[torch.ones_like(entry[0][0])]]
    if size == 2:
        return [[entry[1][1], -entry[1][0]], [-entry[0][1], entry[0][0]]]
    after = ((1, 2), (2, 0), (0, 1))  # in cyclic order, so that no sign changes
    return [
        [entry[r][c] * entry[s][d] - entry[r][d] * entry[s][c] for c, d in after]  # of minors
        for r, s in after
    ]


def _along_first_row(a: torch.Tensor, cofactors: list[list[torch.Tensor]]) -> torch.Tensor:
    terms = [a[..., 0, column] * cofactor for column, cofactor in enumerate(cofactors[0])]
    return sum(terms[1:], terms[0])


def _det(a: torch.Tensor) -> Any:
    """Of matrices of up to 3 rows, by cofactors; PyTorch's factors, the other results, are for its backward alone."""
    cofactors = _cofactors(a)
    if cofactors is None:
        return NotImplemented
    return _along_first_row(a, cofactors), torch.empty_like(a), a.new_empty(a.shape[:-1], dtype=torch.int32)


def _inverse(a: torch.Tensor, *, check_errors: bool = False) -> Any:
    """Of matrices of up to 3 rows, by cofactors; one that has no inverse gives infinities and NaN."""
    cofactors = _cofactors(a)
    if cofactors is None:
        return NotImplemented
    columns = [torch.stack(row, -1) for row in cofactors]
    inverse = torch.stack(columns, -1) / _along_first_row(a, cofactors)[..., None, None]
    return inverse, a.new_zeros(a.shape[:-2], dtype=torch.int32)


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
    torch.ops.aten._cdist_forward.default: _cdist,
    torch.ops.aten.cov.default: _cov,
    torch.ops.aten.quantile.default: _quantile,
    torch.ops.aten.quantile.scalar: _quantile,
    torch.ops.aten._linalg_det.default: _det,
    torch.ops.aten.linalg_inv_ex.default: _inverse,
    torch.ops.aten.fill_diagonal_.default: _fill_diagonal,
    torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default: _fake_quantized,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default: _fake_quantized_channels,
    torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _fake_quantized_by_tensors,
    torch.ops.aten._is_all_true.default: lambda x: x.all(),
    torch.ops.aten._trilinear.default: _trilinear,
    torch.ops.aten.col2im.default: _col2im,
    torch.ops.aten.kthvalue.default: _kthvalue,
    torch.ops.aten.median.dim: _median,
    torch.ops.aten.median.default: lambda x: _median(x.flatten(), 0)[0],
}

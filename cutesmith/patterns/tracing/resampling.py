"""Decompositions of what samples an image: at points of a grid, and at another size with antialiasing."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

BILINEAR, NEAREST = 0, 1
ZEROS, BORDER = 0, 1
CUDNN_CHANNELS = 1024  # of an image, at most: with zeros around and aligned corners PyTorch lets cuDNN sample it


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
    sizes = image.shape[2:]
    places = [_place(grid[..., 1 - dim].unsqueeze(1), sizes[dim], align_corners) for dim in range(2)]
    total = _sampled(image, places, interpolation)
    by_cudnn = align_corners and image.shape[1] <= CUDNN_CHANNELS and interpolation == BILINEAR
    if not by_cudnn:  # whose weights are NaN where a coordinate is not finite
        return total
    return torch.where(places[0].isfinite() & places[1].isfinite(), total, torch.nan)


def _grid_sampler_3d(
    image: torch.Tensor, grid: torch.Tensor, interpolation: int = 0, padding: int = 0, align_corners: bool = False
) -> Any:
    """As in two dimensions; beyond a border lies the border, or the image turned back at it."""
    if interpolation not in (BILINEAR, NEAREST) or not image.is_floating_point():
        return NotImplemented
    grid, sizes = grid.to(torch.promote_types(grid.dtype, torch.float32)), image.shape[2:]
    places = [_place(grid[..., 2 - dim].unsqueeze(1), size, align_corners) for dim, size in enumerate(sizes)]
    if padding != ZEROS:
        if padding != BORDER:
            places = [_reflected(place, size, align_corners) for place, size in zip(places, sizes, strict=True)]
        places = [place.clamp(0, size - 1) for place, size in zip(places, sizes, strict=True)]
    return _sampled(image, places, interpolation).to(image.dtype)


def _reflected(place: torch.Tensor, size: int, align_corners: bool) -> torch.Tensor:
    """Turned back at the first and last element, or at their outer edges, as often as it leaves."""
    first, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
    if span == 0:
        return torch.zeros_like(place)
    far = (place - first).abs() % (2 * span)
    return torch.where(far > span, 2 * span - far, far) + first


def _sampled(image: torch.Tensor, places: list[torch.Tensor], interpolation: int) -> torch.Tensor:
    """The elements of (batch, channels, *sizes) at a place along each of the sizes, or those around it, weighted."""
    batch, channels, *sizes = image.shape
    ones = [1] * len(sizes)
    lines = torch.arange(batch, device=image.device).view(-1, 1, *ones)
    planes = torch.arange(channels, device=image.device).view(1, -1, *ones)

    def seen(corner: Sequence[torch.Tensor], weight: torch.Tensor | None) -> torch.Tensor:
        inside = _all((place >= 0) & (place < size) for place, size in zip(corner, sizes, strict=True))
        value = image[(lines, planes, *(torch.where(inside, place, 0).long() for place in corner))]
        return torch.where(inside, value if weight is None else value * weight, 0.0)

    if interpolation == NEAREST:
        return seen([place.round() for place in places], None)
    sides = [
        ((place.floor(), place.floor() + 1 - place), (place.floor() + 1, place - place.floor())) for place in places
    ]
    corners = itertools.product(*sides)
    return _sum([seen([at for at, _ in corner], _product([share for _, share in corner])) for corner in corners])


def _affine_grid(theta: torch.Tensor, size: list[int], align_corners: bool) -> torch.Tensor:
    """Each coordinate as a sum of few products; PyTorch's decomposition sums a table of them, which would be stored."""
    rank, ones = len(size) - 2, [1] * (len(size) - 2)
    places = [_from_minus_one(count, theta, align_corners).view(-1, *ones[:at]) for at, count in enumerate(size[:1:-1])]

    def coordinate(row: int) -> torch.Tensor:
        *factors, offset = (theta[:, row, at].view(-1, *ones) for at in range(rank + 1))
        return sum((factor * place for factor, place in zip(factors, places, strict=True)), offset)

    return torch.stack(list(map(coordinate, range(rank))), -1)


def _from_minus_one(count: int, like: torch.Tensor, align_corners: bool) -> torch.Tensor:
    """Places from -1 to 1: of the first and last element, or of their outer edges."""
    if count == 1:
        return torch.zeros(1, dtype=like.dtype, device=like.device)
    end = 1 if align_corners else (count - 1) / count
    return torch.linspace(-end, end, count, dtype=like.dtype, device=like.device)


def _place(coordinate: torch.Tensor, size: int, align_corners: bool) -> torch.Tensor:
    """From -1 … 1 to 0 … size - 1, or to the outer edges of the first and the last element."""
    return coordinate * ((size - 1) / 2 if align_corners else size / 2) + (size - 1) / 2


def _triangle(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 1, 1 - x.abs(), 0.0)


def _cubic(x: torch.Tensor) -> torch.Tensor:
    """Keys' cubic with a = -1/2."""
    x = x.abs()
    outer = torch.where(x < 2, ((-0.5 * x + 2.5) * x - 4) * x + 2, 0.0)
    return torch.where(x < 1, (1.5 * x - 2.5) * x * x + 1, outer)


def _antialiased(
    form: Callable[[torch.Tensor], torch.Tensor],
    reach: int,
    image: torch.Tensor,
    sizes: list[int],
    align_corners: bool,
    *factors: float | None,
) -> Any:
    """A separable filter that reaches `reach` elements of the smaller image to both sides."""
    if not image.is_floating_point():
        return NotImplemented
    filtered = image.to(torch.float32) if image.dtype in (torch.float16, torch.bfloat16) else image
    for dim in (1, 0):
        size = filtered.shape[2 + dim]
        step = _step(size, sizes[dim], align_corners, factors[dim] if factors else None)
        filtered = _filtered(_STORED(filtered), 2 + dim, sizes[dim], step, form, reach)
    return filtered.to(image.dtype)


def _step(size: int, count: int, align_corners: bool, factor: float | None) -> float:
    """How many elements of an image lie between two that are computed of it."""
    if align_corners:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return 1 / factor if factor else size / count


def _filtered(
    image: torch.Tensor, dim: int, count: int, step: float, form: Callable[[torch.Tensor], torch.Tensor], reach: int
) -> torch.Tensor:
    """Along one dimension: each element of the new one is a mean of those within reach, weighted by the form."""
    size, wide = image.shape[dim], max(step, 1.0)
    centre = (torch.arange(count, device=image.device).double() + 0.5) * step
    first = (centre - reach * wide + 0.5).long().clamp(min=0)
    last = (centre + reach * wide + 0.5).long().clamp(max=size)
    distance = (first - centre + 0.5).to(image.dtype)  # the difference of large numbers is rounded once
    shape = [-1 if at == dim else 1 for at in range(image.dim())]
    totals, weights = list[torch.Tensor](), list[torch.Tensor]()
    for tap in range(2 * math.ceil(reach * wide) + 1):
        inside = first + tap < last
        weight = torch.where(inside, form((distance + tap) / wide), 0.0)
        place: list[Any] = [*[slice(None)] * dim, (first + tap).clamp(max=size - 1)]
        value = image[tuple(place)]
        totals.append(torch.where(inside.view(shape), value * weight.view(shape), 0.0))
        weights.append(weight)
    return _sum(totals) / _sum(weights).view(shape)


def _sum(terms: list[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, terms)


def _product(factors: list[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.mul, factors)


def _all(conditions: Iterable[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.logical_and, conditions)


_STORED = torch.ops.prims.clone.default  # what is read many times lies in memory
_GRID_SAMPLER = torch.ops.aten.grid_sampler_2d.default
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _GRID_SAMPLER: _grid_sampler_2d,
    torch.ops.aten.grid_sampler_3d.default: _grid_sampler_3d,
    torch.ops.aten.affine_grid_generator.default: _affine_grid,
    torch.ops.aten._upsample_bilinear2d_aa.default: functools.partial(_antialiased, _triangle, 1),
    torch.ops.aten._upsample_bicubic2d_aa.default: functools.partial(_antialiased, _cubic, 2),
}

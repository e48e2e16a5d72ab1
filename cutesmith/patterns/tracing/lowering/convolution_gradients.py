"""Lowerings of a convolution's backward pass: the image's gradient, the weights', and that of the bias.

The gradient of the image is a transposed convolution of the result's, and the other way round. That of the weights is a
product whose sum goes over all positions of all images. The image lies in memory with its channels last, and with
zeros around it. There a tap is the same number of rows further on for every position: the factor of each tap is a view
of one tensor, and the places that no window begins at count as zeros of the other factor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from cutesmith.patterns.graph.attributes import Input, View
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.dtypes import HALVES, compute_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice
from cutesmith.patterns.tracing.lowering.convolutions import convolution
from cutesmith.patterns.tracing.lowering.dispatch import Lowered, Lowering, lowers
from cutesmith.problems.precision_flags import convolutions_may_round

Sizes = Sequence[int]


@lowers("convolution_backward")
def _convolution_backward(
    low: Lowering,
    grad: Node,
    image: Node,
    weight: Node,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    wanted: Sequence[bool],
) -> Lowered:
    """The gradients of image, weights and bias, those that are wanted."""
    windows = _Windows(tuple(weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation), groups)
    grad = low.build.stored(grad) if sum(wanted) > 1 else grad
    of_image = of_weight = of_bias = None
    of_positions = grad  # as the image's gradient reads it
    if wanted[1]:
        seen, made = (grad, image) if transposed else (image, grad)
        if groups == seen.shape[1] == made.shape[1]:
            of_weight = _by_channel(low, seen, made, windows, low.dtypes[1])
        else:
            placed = _placed(low, made, windows)
            of_weight = _weight_gradient(low, seen, placed, windows, low.dtypes[1])
            if not transposed and made.dtype in HALVES and not _has_channels_last(made):
                of_positions = _first_places(low, placed, made.shape)
    if wanted[0]:
        of_image = _image_gradient(low, of_positions, image, weight, windows, transposed)
    if wanted[2]:
        dims = [dim for dim in range(len(grad.shape)) if dim != 1]
        of_bias = low.build.reshape(low.build.reduce("sum", grad, dims, low.dtypes[2]), (grad.shape[1],))
    return of_image, of_weight, of_bias


@dataclass(frozen=True)
class _Windows:
    """Those of the convolution that is not transposed: of `groups` of channels, and along each dimension."""

    taps: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int

    @property
    def slides(self) -> tuple[bool, ...]:
        """Along which dimensions neighbouring windows begin at neighbouring elements."""
        return tuple(step == 1 for step in self.stride)

    @property
    def reaches(self) -> Shape:
        """Elements from a window's first to its last."""
        return tuple(apart * (taps - 1) for apart, taps in zip(self.dilation, self.taps, strict=True))


def _image_gradient(low: Lowering, grad: Node, image: Node, weight: Node, windows: _Windows, transposed: bool) -> Node:
    """The convolution the other way; elements that no window saw, at the end, are positions more.

    A transposed convolution may have more positions at its end than a stride: no element of its image made those.
    """
    counts, more = list[int](), list[int]()
    dims = zip(image.shape[2:], grad.shape[2:], windows.stride, windows.padding, windows.reaches, strict=True)
    for size, count, step, pad, reach in dims:
        counts.append((count + 2 * pad - reach - 1) // step + 1 if transposed else size)
        more.append(0 if transposed else size - ((count - 1) * step - 2 * pad + reach + 1))
    inner = Lowering(low.build, low.scalars, [(*image.shape[:2], *counts)], [low.dtypes[0]])
    options = windows.stride, windows.padding, windows.dilation, not transposed, more, windows.groups
    found = convolution(inner, grad, weight, None, *options)
    for dim, size in enumerate(image.shape[2:], 2):
        found = push_slice(low.build, found, dim, 0, size)
    return found


def _weight_gradient(low: Lowering, image: Node, made: Node, windows: _Windows, dtype: str) -> Node:
    """(outputs, channels of a group, *taps), of an image (N, channels, *sizes) and a gradient (N, outputs, *places)."""
    build, groups, rank, pitches = low.build, windows.groups, len(windows.taps), made.shape[2:]
    channels, outputs = image.shape[1] // groups, made.shape[1] // groups
    pairs = list(zip(windows.slides, windows.taps, strict=True))
    beside, along = (tuple(taps if slides is kind else 1 for slides, taps in pairs) for kind in (False, True))
    lines = build.stored(_lines(low, image, pitches, beside, windows))
    rows, row = image.shape[0] * math.prod(pitches), math.prod(beside) * channels
    steps = [apart * row * math.prod(pitches[dim + 1 :]) for dim, apart in enumerate(windows.dilation)]
    neighbours = along[-1] if steps[-1] == row else 1  # taps along the last dimension whose rows follow each other
    batch = {0: (groups, math.prod(lines.shape[1:]))} | dict(enumerate(zip(along, steps, strict=True), 1))
    batch |= {rank: (1, 0)} if neighbours > 1 else {}
    batch = {dim: span for dim, span in batch.items() if span[0] > 1}
    sizes, strides = zip(*batch.values(), (rows, row), (neighbours * row, 1), strict=True)
    factor = _strided(low, lines, sizes, strides)
    made = push_permute(build, made, [1, 0, *range(2, 2 + rank)])
    made = build.reshape(made, (groups, *(1,) * rank, outputs, rows))
    made = build.reshape(made, (*(groups if dim == 0 else 1 for dim in batch), outputs, rows))
    rounds = image.dtype == "float32" and convolutions_may_round()
    product = contract(build, made, factor, dtype, tf32=rounds)
    taps = [batch.get(dim, (1,))[0] for dim in range(rank + 1)]
    product = build.reshape(product, (*taps, outputs, neighbours, *beside, channels))
    of_taps = [at for dim in range(1, rank + 1) for at in (dim, rank + 2 + dim)]
    turned = push_permute(build, product, [0, rank + 1, 2 * rank + 3, *of_taps, rank + 2])
    return build.reshape(turned, (groups * outputs, channels, *windows.taps))


def _by_channel(low: Lowering, image: Node, grad: Node, windows: _Windows, dtype: str) -> Node:
    """(channels, 1, *taps) of a depthwise convolution: for each tap a sum of the products with what it sees."""
    build, rank, (count, channels, *counts) = low.build, len(windows.taps), grad.shape
    seen = _unfolded(low, _padded(low, image, windows), windows)
    for dim, size in enumerate(counts, 2):
        seen = push_slice(build, seen, dim, 0, size)
    seen = push_permute(build, seen, [0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)])
    made = build.reshape(grad, (count, channels, *(1,) * rank, *counts))
    product = build("mul", seen, made, dtype=compute_dtype(dtype))
    total = build.reduce("sum", product, (0, *range(2 + rank, 2 + 2 * rank)), dtype)
    return build.reshape(total, (channels, 1, *windows.taps))


def _unfolded(low: Lowering, image: Node, windows: _Windows) -> Node:
    """(N, channels, *counts, *taps), a view of an image in memory whose elements are seen by several windows."""
    sizes = tuple(reach + 1 for reach in windows.reaches)
    unfolded = "".join(f".unfold({dim + 2}, {{{dim + 1}}}, {step})" for dim, step in enumerate(windows.stride))
    apart = ", ".join(f"::{step}" for step in windows.dilation)

    def view(base: torch.Tensor) -> torch.Tensor:
        for dim, (size, step) in enumerate(zip(sizes, windows.stride, strict=True), 2):
            base = base.unfold(dim, size, step)
        every: tuple[Any, ...] = (..., *(slice(None, None, step) for step in windows.dilation))
        return base[every]

    seen = low.build.view_in_memory(image, View(f"{{0}}{unfolded}[..., {apart}]", sizes), view)
    assert seen is not None
    return seen


def _padded(low: Lowering, image: Node, windows: _Windows) -> Node:
    """The image with zeros around it, in memory."""
    build, rank = low.build, len(windows.taps)
    sizes = [size + 2 * pad for size, pad in zip(image.shape[2:], windows.padding, strict=True)]
    shape = (*image.shape[:2], *sizes)
    at = [build.iota(shape, dim) for dim in range(rank + 2)]
    places = [build("sub", at[2 + dim], pad) if pad else at[2 + dim] for dim, pad in enumerate(windows.padding)]
    padded = zip(places, image.shape[2:], windows.padding, strict=True)
    tests = [(op, place, bound) for place, size, pad in padded if pad for op, bound in (("ge", 0), ("lt", size))]
    inside = [build(*test) for test in tests]
    return build.stored(_inside(low, take(build, image, [*at[:2], *places], shape), inside) if inside else image)


def _pitches(grad: Node, windows: _Windows) -> Shape:
    """Places in memory along each dimension: those of windows, and of the elements that the last ones reach."""
    sizes = zip(grad.shape[2:], windows.reaches, windows.slides, strict=True)
    return tuple(count + reach if slides else count for count, reach, slides in sizes)


def _lines(low: Lowering, image: Node, pitches: Shape, beside: Shape, windows: _Windows) -> Node:
    """(groups, N, *places, *taps, channels), zeros around the image; behind it one of zeros, into which taps reach."""
    build, rank, (count, channels) = low.build, len(pitches), image.shape[:2]
    more = any(reach and slides for reach, slides in zip(windows.reaches, windows.slides, strict=True))
    shape = (windows.groups, count + more, *pitches, *beside, channels // windows.groups)
    at = [build.iota(shape, dim) for dim in range(len(shape))]
    places, inside = list[Node](), [build("lt", at[1], count)] if more else []
    for dim, size in enumerate(image.shape[2:]):
        place, pad, pitch = at[2 + dim], windows.padding[dim], pitches[dim]
        if not windows.slides[dim]:
            place = build(
                "add", build("mul", place, windows.stride[dim]), build("mul", at[2 + rank + dim], windows.dilation[dim])
            )
        if pad:
            place = build("sub", place, pad)
            inside += [build("ge", place, 0)]
        if pad or pitch != size:
            inside += [build("lt", place, size)]
        places.append(place)
    channel = build("add", build("mul", at[0], channels // windows.groups), at[-1])
    return _inside(low, take(build, image, [at[1], channel, *places], shape), inside)


def _placed(low: Lowering, grad: Node, windows: _Windows) -> Node:
    """The gradient (N, outputs, *places), zeros where no window begins.

    Of 16 bits it is stored with its channels last, as the convolution that gives the image's gradient reads it, too.
    wgmma takes factors of float32 along the positions alone.
    """
    build, (count, outputs, *counts), pitches = low.build, grad.shape, _pitches(grad, windows)
    if tuple(counts) == pitches:
        return grad
    rank = len(pitches)
    order = [0, *range(2, 2 + rank), 1] if grad.dtype in HALVES else [1, 0, *range(2, 2 + rank)]
    sizes = (count, outputs, *pitches)
    shape = tuple(sizes[dim] for dim in order)
    at = [build.iota(shape, order.index(dim)) for dim in range(2 + rank)]
    inside = [build("lt", place, size) for place, size in zip(at[2:], counts, strict=True)]
    placed = build.stored(_inside(low, take(build, grad, at, shape), inside))
    return push_permute(build, placed, [order.index(dim) for dim in range(2 + rank)])


def _has_channels_last(x: Node) -> bool:
    """Whether the channels of an image in memory lie side by side."""
    return x.op == "input" and Input.of(x).stride[1] == 1


def _first_places(low: Lowering, placed: Node, shape: Shape) -> Node:
    """What lies at the first places along each dimension."""
    for dim, size in enumerate(shape):
        placed = push_slice(low.build, placed, dim, 0, size)
    return placed


def _inside(low: Lowering, value: Node, conditions: Sequence[Node]) -> Node:
    """The value, and 0 where one of the conditions does not hold."""
    if not conditions:
        return low.build.materialise(value)
    held = reduce(lambda one, other: low.build("logical_and", one, other), conditions)
    return low.build("where", held, value, low.build.constant(0, compute_dtype(value.dtype)), dtype=value.dtype)


def _strided(low: Lowering, x: Node, sizes: Shape, strides: Shape) -> Node:
    """What lies in the memory of a stored value, seen otherwise; elements may be seen several times."""
    numbers = itertools.count(1)
    written = [", ".join(f"{{{next(numbers)}}}" for _ in each) for each in (sizes, strides)]
    view = View(f"{{0}}.as_strided(({written[0]}), ({written[1]}))", (*sizes, *strides))
    seen = low.build.view_in_memory(x, view, lambda base: base.as_strided(sizes, strides))
    assert seen is not None
    return seen

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

from cutesmith.patterns.graph.attributes import Input, View
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.dtypes import HALVES
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice
from cutesmith.patterns.tracing.lowering.convolutions import convolution
from cutesmith.patterns.tracing.lowering.depthwise_gradients import gradient_by_channel
from cutesmith.patterns.tracing.lowering.dispatch import Lowered, Lowering, lowers
from cutesmith.patterns.tracing.lowering.window_views import Slides, inside
from cutesmith.problems.precision_flags import convolutions_may_round

Sizes = Sequence[int]

EVEN = 1056, 132, 12
"""Of the places of all images a multiple is summed up where that is at most a 64th of them more: such a sum comes in as
many equal parts as a GPU has use for."""


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
    windows = Slides(tuple(weight.shape[2:]), tuple(stride), tuple(padding), tuple(dilation), groups)
    grad = low.build.stored(grad) if sum(wanted) > 1 else grad
    of_image = of_weight = of_bias = None
    of_positions = grad  # as the image's gradient reads it
    if wanted[1]:
        seen, made = (grad, image) if transposed else (image, grad)
        if groups == seen.shape[1] == made.shape[1]:
            of_weight = gradient_by_channel(low, seen, made, windows, low.dtypes[1])
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


def _image_gradient(low: Lowering, grad: Node, image: Node, weight: Node, windows: Slides, transposed: bool) -> Node:
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


def _weight_gradient(low: Lowering, image: Node, made: Node, windows: Slides, dtype: str) -> Node:
    """(outputs, channels of a group, *taps), of an image (N, channels, *sizes) and a gradient (N, outputs, *places)."""
    build, groups, rank, pitches = low.build, windows.groups, len(windows.taps), made.shape[2:]
    channels, outputs = image.shape[1] // groups, made.shape[1] // groups
    pairs = list(zip(windows.slides, windows.taps, strict=True))
    beside, along = (tuple(taps if slides is kind else 1 for slides, taps in pairs) for kind in (False, True))
    lines = build.stored(_lines(low, image, pitches, beside, windows))
    rows, row = _summed_rows(image.shape[0], pitches, windows), math.prod(beside) * channels
    rows = rows if made.shape[0] > image.shape[0] else image.shape[0] * math.prod(pitches)
    steps = [apart * row * math.prod(pitches[dim + 1 :]) for dim, apart in enumerate(windows.dilation)]
    neighbours = along[-1] if steps[-1] == row else 1  # taps along the last dimension whose rows follow each other
    batch = {0: (groups, math.prod(lines.shape[1:]))} | dict(enumerate(zip(along, steps, strict=True), 1))
    batch |= {rank: (1, 0)} if neighbours > 1 else {}
    batch = {dim: span for dim, span in batch.items() if span[0] > 1}
    sizes, strides = zip(*batch.values(), (rows, row), (neighbours * row, 1), strict=True)
    factor = _strided(low, lines, sizes, strides)
    made = push_permute(build, made, [1, 0, *range(2, 2 + rank)])
    made = build.reshape(made, (groups, *(1,) * rank, outputs, made.shape[1] * math.prod(pitches)))
    made = push_slice(build, made, rank + 2, 0, rows)
    made = build.reshape(made, (*(groups if dim == 0 else 1 for dim in batch), outputs, rows))
    rounds = image.dtype == "float32" and convolutions_may_round()
    product = contract(build, made, factor, dtype, tf32=rounds)
    taps = [batch.get(dim, (1,))[0] for dim in range(rank + 1)]
    product = build.reshape(product, (*taps, outputs, neighbours, *beside, channels))
    of_taps = [at for dim in range(1, rank + 1) for at in (dim, rank + 2 + dim)]
    turned = push_permute(build, product, [0, rank + 1, 2 * rank + 3, *of_taps, rank + 2])
    return build.reshape(turned, (groups * outputs, channels, *windows.taps))


def _pitches(grad: Node, windows: Slides) -> Shape:
    """Places in memory along each dimension: those of windows, and of the elements that the last ones reach."""
    sizes = zip(grad.shape[2:], windows.reaches, windows.slides, strict=True)
    return tuple(count + reach if slides else count for count, reach, slides in sizes)


def _summed_rows(count: int, pitches: Shape, windows: Slides) -> int:
    """Places of so many images, and some of one of zeros behind them that no tap reaches beyond."""
    places, rows = math.prod(pitches), count * math.prod(pitches)
    reached = sum(reach * math.prod(pitches[dim + 1 :]) for dim, reach in enumerate(windows.reaches))
    fitting = (-rows % even for even in EVEN if 64 * even <= rows and -rows % even + reached <= places)
    return rows + next(fitting, 0)


def _lines(low: Lowering, image: Node, pitches: Shape, beside: Shape, windows: Slides) -> Node:
    """(groups, N, *places, *taps, channels), zeros around the image; behind it one of zeros, into which taps reach."""
    build, rank, (count, channels) = low.build, len(pitches), image.shape[:2]
    more = any(reach and slides for reach, slides in zip(windows.reaches, windows.slides, strict=True))
    shape = (windows.groups, count + more, *pitches, *beside, channels // windows.groups)
    at = [build.iota(shape, dim) for dim in range(len(shape))]
    places, conditions = list[Node](), [build("lt", at[1], count)] if more else []
    for dim, size in enumerate(image.shape[2:]):
        place, pad, pitch = at[2 + dim], windows.padding[dim], pitches[dim]
        if not windows.slides[dim]:
            place = build(
                "add", build("mul", place, windows.stride[dim]), build("mul", at[2 + rank + dim], windows.dilation[dim])
            )
        if pad:
            place = build("sub", place, pad)
            conditions += [build("ge", place, 0)]
        if pad or pitch != size:
            conditions += [build("lt", place, size)]
        places.append(place)
    channel = build("add", build("mul", at[0], channels // windows.groups), at[-1])
    return inside(low, take(build, image, [at[1], channel, *places], shape), conditions)


def _placed(low: Lowering, grad: Node, windows: Slides) -> Node:
    """The gradient (N, outputs, *places), zeros where no window begins.

    Of 16 bits it is stored with its channels last, as the convolution that gives the image's gradient reads it, too,
    and an image of zeros behind it. wgmma takes factors of float32 along the positions alone.
    """
    build, (count, outputs, *counts), pitches = low.build, grad.shape, _pitches(grad, windows)
    if tuple(counts) == pitches:
        return grad
    rank, more = len(pitches), grad.dtype in HALVES
    order = [0, *range(2, 2 + rank), 1] if more else [1, 0, *range(2, 2 + rank)]
    sizes = (count + more, outputs, *pitches)
    shape = tuple(sizes[dim] for dim in order)
    at = [build.iota(shape, order.index(dim)) for dim in range(2 + rank)]
    conditions = [build("lt", place, size) for place, size in zip(at[2:], counts, strict=True)]
    conditions += [build("lt", at[0], count)] if more else []
    placed = build.stored(inside(low, take(build, grad, at, shape), conditions))
    return push_permute(build, placed, [order.index(dim) for dim in range(2 + rank)])


def _has_channels_last(x: Node) -> bool:
    """Whether the channels of an image in memory lie side by side."""
    return x.op == "input" and Input.of(x).stride[1] == 1


def _first_places(low: Lowering, placed: Node, shape: Shape) -> Node:
    """What lies at the first places along each dimension."""
    for dim, size in enumerate(shape):
        placed = push_slice(low.build, placed, dim, 0, size)
    return placed


def _strided(low: Lowering, x: Node, sizes: Shape, strides: Shape) -> Node:
    """What lies in the memory of a stored value, seen otherwise; elements may be seen several times."""
    numbers = itertools.count(1)
    written = [", ".join(f"{{{next(numbers)}}}" for _ in each) for each in (sizes, strides)]
    view = View(f"{{0}}.as_strided(({written[0]}), ({written[1]}))", (*sizes, *strides))
    seen = low.build.view_in_memory(x, view, lambda base: base.as_strided(sizes, strides))
    assert seen is not None
    return seen

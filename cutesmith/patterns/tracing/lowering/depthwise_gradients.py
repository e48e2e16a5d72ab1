"""The gradient of a depthwise convolution's weights: for each channel and tap a sum over all positions of all images.

A product on a tensor core, for each channel, multiplies every element of a line of the result's gradient by every
element of the lines that windows see from there: taps are diagonals of what it gives. Few of its numbers are wanted,
but each element is read a few times, not once for each tap. Weights of 7 x 7 for 32 x 96 x 56 x 56 took 770 us on an
H200 as sums of single products.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from cutesmith.patterns.graph.attributes import View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice
from cutesmith.patterns.tracing.lowering.dispatch import Lowering
from cutesmith.patterns.tracing.lowering.window_views import Slides, inside
from cutesmith.problems.precision_flags import convolutions_may_round

FEWEST_TAPS = 9
"""Where they are fewer, sums of single products read as little."""

ALIGNED = 8
"""Elements of 16 bits, where TMA can begin to read."""


def gradient_by_channel(low: Lowering, image: Node, grad: Node, windows: Slides, dtype: str) -> Node:
    """(channels, 1, *taps) of an image (N, channels, *sizes) and the gradient of the result (N, channels, *places)."""
    by_lines = len(windows.taps) > 1 and all(windows.slides[:-2]) and math.prod(windows.taps) >= FEWEST_TAPS
    if by_lines and (image.dtype != "float32" or convolutions_may_round()):
        return _diagonals(low, image, grad, windows, dtype)
    return _sums_of_taps(low, image, grad, windows, dtype)


def _diagonals(low: Lowering, image: Node, grad: Node, windows: Slides, dtype: str) -> Node:
    """Sums along diagonals of products of lines; a line of the image is followed by those of the taps below it."""
    build, channels = low.build, grad.shape[1]
    made, seen = _lines_of_gradient(low, grad, windows), _lines_of_image(low, image, grad, windows)
    follow = windows.dilation[-2] == 1  # taps below each other: their lines, in memory
    apart, below = (windows.taps[:-2], windows.taps[-2]) if follow else (windows.taps[:-1], 1)
    factor = _followed(build, seen, apart, below, windows)
    made = build.reshape(made, (channels, *(1,) * len(apart), factor.shape[-2], grad.shape[-1]))
    made = push_permute(build, made, [*range(len(apart) + 1), len(apart) + 2, len(apart) + 1])
    rounds = image.dtype == "float32" and convolutions_may_round()
    product = build.stored(contract(build, made, factor, compute_dtype(dtype), tf32=rounds))
    diagonals = _along_diagonals(build, product, below, windows)
    total = build.reduce("sum", diagonals, (len(diagonals.shape) - 1,), dtype)
    return build.reshape(total, (channels, 1, *windows.taps))


def _followed(build: GraphBuilder, seen: Node, apart: Shape, below: int, windows: Slides) -> Node:
    """(channels, *taps apart, lines, elements of a line and of those that follow it), of an image's lines."""
    step, steps, rank = windows.stride[-2], windows.dilation[: len(apart)], len(windows.taps)
    rows = " * ".join(["({0}.shape[1] - 1)", *(f"{{0}}.shape[{dim}]" for dim in range(2, 1 + rank))])
    sizes = ["{0}.shape[0]", *map(str, apart), f"{rows} // {step}" if step > 1 else rows, f"{{0}}.shape[-1] * {below}"]
    strides = [f"{{0}}.stride({dim}) * {step}" for dim, step in enumerate(steps, 2)]
    strides = ["{0}.stride(0)", *strides, f"{{0}}.stride({rank}) * {step}", "1"]

    def view(base: torch.Tensor) -> torch.Tensor:
        channels, count, *places, line = base.shape
        of_taps = [base.stride(dim) * step for dim, step in enumerate(steps, 2)]
        shape = channels, *apart, (count - 1) * math.prod(places) // step, line * below
        return base.as_strided(shape, (base.stride(0), *of_taps, base.stride(rank) * step, 1))

    followed = build.view_in_memory(seen, View(f"{{0}}.as_strided(({', '.join(sizes)}), ({', '.join(strides)}))"), view)
    assert followed is not None
    return followed


def _along_diagonals(build: GraphBuilder, product: Node, below: int, windows: Slides) -> Node:
    """(channels, *taps, positions of a line) of (channels, *taps apart, positions, elements of lines)."""
    outer, step, dilation, pad = len(product.shape) - 2, windows.stride[-1], windows.dilation[-1], windows.padding[-1]
    follow = outer == len(windows.taps) - 1
    strides = [f"{{0}}.stride({dim})" for dim in range(outer)] + [f"{{0}}.shape[-1] // {below}"] * follow
    strides += [str(dilation), f"{{0}}.stride({outer}) + {step}"]
    sizes = ["{0}.shape[0]", *map(str, windows.taps), "{0}.shape[-2]"]
    first = _whole(pad) - pad

    def view(base: torch.Tensor) -> torch.Tensor:
        steps = *base.stride()[:outer], *[base.shape[-1] // below] * follow, dilation, base.stride(outer) + step
        return base[..., first:].as_strided((base.shape[0], *windows.taps, base.shape[-2]), steps)

    code = View(f"{{0}}[..., {first}:].as_strided(({', '.join(sizes)}), ({', '.join(strides)}))")
    diagonals = build.view_in_memory(product, code, view)
    assert diagonals is not None
    return diagonals


def _whole(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED


def _lines_of_gradient(low: Lowering, grad: Node, windows: Slides) -> Node:
    """(channels, N, *places, positions of a line), zeros in lines where no window begins."""
    build, (count, channels, *counts, width) = low.build, grad.shape
    more = [-(-(reach + 1) // step) - 1 for reach, step in zip(windows.reaches[:-1], windows.stride[:-1], strict=True)]
    shape = (channels, count, *map(sum, zip(counts, more, strict=True)), width)
    at = [build.iota(shape, dim) for dim in range(len(shape))]
    conditions = [build("lt", at[dim], size) for dim, size in enumerate(counts, 2) if more[dim - 2]]
    return build.stored(inside(low, take(build, grad, [at[1], at[0], *at[2:]], shape), conditions))


def _lines_of_image(low: Lowering, image: Node, grad: Node, windows: Slides) -> Node:
    """(channels, N and one more, *places, elements of a line): zeros around the image, vectors of them along lines."""
    build, (count, channels, *sizes) = low.build, image.shape
    (*steps, step), (*reaches, reach), (*pads, pad) = windows.stride, windows.reaches, windows.padding
    spans = zip(grad.shape[2:-1], steps, reaches, strict=True)
    places = [step * (positions - 1 + -(-(reach + 1) // step)) for positions, step, reach in spans]
    line = _whole(pad) + step * grad.shape[-1] + _whole(max(0, reach - pad - step + 1))
    shape = (channels, count + 1, *places, line)
    at = [build.iota(shape, dim) for dim in range(len(shape))]
    firsts = [*pads, _whole(pad)]
    found = [build("sub", place, first) if first else place for place, first in zip(at[2:], firsts, strict=True)]
    conditions = [build("lt", at[1], count)]
    for place, size, first in zip(found, sizes, firsts, strict=True):
        conditions += [build("ge", place, 0)] if first else []
        conditions += [build("lt", place, size)]
    return build.stored(inside(low, take(build, image, [at[1], at[0], *found], shape), conditions))


def _sums_of_taps(low: Lowering, image: Node, grad: Node, windows: Slides, dtype: str) -> Node:
    """For each tap a sum of the products with what it sees."""
    build, rank, (count, channels, *counts) = low.build, len(windows.taps), grad.shape
    seen = _unfolded(low, _padded(low, image, windows), windows)
    for dim, size in enumerate(counts, 2):
        seen = push_slice(build, seen, dim, 0, size)
    seen = push_permute(build, seen, [0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)])
    made = build.reshape(grad, (count, channels, *(1,) * rank, *counts))
    product = build("mul", seen, made, dtype=compute_dtype(dtype))
    total = build.reduce("sum", product, (0, *range(2 + rank, 2 + 2 * rank)), dtype)
    return build.reshape(total, (channels, 1, *windows.taps))


def _unfolded(low: Lowering, image: Node, windows: Slides) -> Node:
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


def _padded(low: Lowering, image: Node, windows: Slides) -> Node:
    """The image with zeros around it, in memory."""
    build, rank = low.build, len(windows.taps)
    sizes = [size + 2 * pad for size, pad in zip(image.shape[2:], windows.padding, strict=True)]
    shape = (*image.shape[:2], *sizes)
    at = [build.iota(shape, dim) for dim in range(rank + 2)]
    places = [build("sub", at[2 + dim], pad) if pad else at[2 + dim] for dim, pad in enumerate(windows.padding)]
    padded = zip(places, image.shape[2:], windows.padding, strict=True)
    tests = [(op, place, bound) for place, size, pad in padded if pad for op, bound in (("ge", 0), ("lt", size))]
    conditions = [build(*test) for test in tests]
    return build.stored(inside(low, take(build, image, [*at[:2], *places], shape), conditions) if tests else image)

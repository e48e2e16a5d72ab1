"""Lowerings of convolutions: the product of the weights and what the windows over the image see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cutesmith.patterns.graph.attributes import Input, Viewed
from cutesmith.patterns.graph.contractions import contract
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.views import push_permute
from cutesmith.patterns.graph.window_attributes import Windows
from cutesmith.patterns.tracing.lowering.contractions import check_one_type
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers
from cutesmith.patterns.tracing.lowering.movement import flip
from cutesmith.problems.precision_flags import convolutions_may_round

Sizes = Sequence[int]

PLACES_OF_PATCHES, OUTPUTS_OF_PATCHES = 32, 64
"""Of a window, and of a convolution, from which on a product takes longer than to store the windows side by side.

Channels say nothing here: they grow when the function is traced at other sizes, and the form may not change with them.
"""

MANY_CHANNELS = 64
"""So many are a step of a product of matrices; the direct form of fewer has the channels first."""


@lowers("convolution")
def convolution(
    low: Lowering,
    x: Node,
    weight: Node,
    bias: Node | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Node:
    """x (N, C, *sizes), weight (out, C / groups, *taps), or (C, out / groups, *taps) where transposed, in any dtype.

    Factors of float32 may round to tf32 where PyTorch's flag for cuDNN allows that. Depthwise convolutions may not:
    PyTorch computes those itself.
    """
    build, rank, shape = low.build, len(stride), tuple(low.shapes[0])
    check_one_type(low, x, weight)
    taps, channels = weight.shape[2:], x.shape[1] // groups
    outputs = shape[1] // groups
    if shape[1] % groups:
        raise RuntimeError(f"{shape[1]} channels of a result are not a multiple of {groups} groups")
    if not channels:
        raise build.unmatched("convolves images without channels")
    if transposed and outputs == 1 and groups == x.shape[1] > 1 and set(stride) == {1} and not any(output_padding):
        around = [apart * (tap - 1) - pad for apart, tap, pad in zip(dilation, taps, padding, strict=True)]
        if min(around) >= 0:  # with the weights turned it is a plain one, which the direct kernel takes
            inner = Lowering(build, low.scalars, [weight.shape], [weight.dtype])
            turned = flip(inner, weight, range(2, 2 + rank))
            return convolution(low, x, turned, bias, stride, around, dilation, False, output_padding, groups)
    if transposed:
        weight = build.reshape(weight, (groups, channels, outputs, *taps))
        weight = push_permute(build, weight, [0, 2, 1, *range(3, 3 + rank)])
    last = not transposed and groups == 1 and channels >= MANY_CHANNELS and _has_channels_last(weight)
    attrs = Windows(
        taps=taps,
        start=tuple(-each if transposed else each for each in padding),
        step=(1,) * rank if transposed else tuple(stride),
        dilation=tuple(-each if transposed else each for each in dilation),
        divisor=tuple(stride) if transposed else (1,) * rank,
        more=tuple(output_padding) if transposed else (0,) * rank,
        taps_first=last,
    )
    batch = (shape[0], groups) if groups > 1 else (shape[0],)
    image = build.reshape(build.stored(x), (*batch, channels, *x.shape[2:]))
    depth, positions = channels * math.prod(taps), math.prod(shape[2:])
    image = build.stored(image)
    if _are_patches(attrs, image, outputs):
        seen = _patches(low, image, shape[2:], taps)
    else:
        seen = build.node("windows", (image,), (*batch, depth, positions), x.dtype, attrs)
    if last:
        weight = push_permute(build, weight, [0, *range(2, 2 + rank), 1])
    factors = build.reshape(weight, (*batch[1:], outputs, depth))
    depthwise = not transposed and groups == x.shape[1] > 1
    tf32 = x.dtype == "float32" and not depthwise and convolutions_may_round()
    product = contract(build, factors, seen, low.dtype, tf32=tf32)
    if bias is not None:
        product = build("add", product, build.reshape(bias, (*batch[1:], outputs, 1)), dtype=low.dtype)
    return build.reshape(product, shape)


def _are_patches(windows: Windows, image: Node, outputs: int) -> bool:
    """Whether windows divide the image, and are better stored one after the other: a large product reads each often."""
    plain = replace(windows, taps=windows.step, start=(0,) * windows.rank, dilation=(1,) * windows.rank)
    large = math.prod(windows.taps) >= PLACES_OF_PATCHES and outputs >= OUTPUTS_OF_PATCHES
    divided = all(size % tap == 0 for size, tap in zip(image.shape[-windows.rank :], windows.taps, strict=True))
    by_channels = Viewed.of(image).stride[-1 - windows.rank] == 1 < image.shape[-1 - windows.rank]  # as TMA reads them
    return large and divided and windows == plain and not windows.taps_first and not by_channels


def _patches(low: Lowering, image: Node, counts: Sizes, taps: Sizes) -> Node:
    """The windows over (…, channels, *sizes) as (…, channels * taps, positions), a view of patches in memory."""
    build, rank = low.build, len(taps)
    lead = len(image.shape) - rank - 1
    sizes = [size for pair in zip(counts, taps, strict=True) for size in pair]
    places, within = range(lead + 1, len(sizes) + lead + 1, 2), range(lead + 2, len(sizes) + lead + 2, 2)
    split = build.reshape(image, (*image.shape[: lead + 1], *sizes))
    split = push_permute(build, split, [*range(lead), *places, lead, *within])
    side_by_side = build.stored(build.node("cast", (split,), split.shape, split.dtype))
    matrix = build.reshape(side_by_side, (*image.shape[:lead], math.prod(counts), image.shape[lead] * math.prod(taps)))
    return push_permute(build, matrix, [*range(lead), lead + 1, lead])


def _has_channels_last(weight: Node) -> bool:
    """Whether the channels of an argument lie side by side, so that the taps in front copy nothing."""
    strides = Input.of(weight).stride if weight.op == "input" else ()
    return len(strides) > 2 and strides[1] == 1 and math.prod(weight.shape[2:]) > 1

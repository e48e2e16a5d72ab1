"""Convolutions of few channels as ones of more: the taps along one dimension become channels of another image.

TMA reads boxes whose neighbours are channels, at least 16 bytes of them. Three channels of float32 are fewer, and their
elements are gathered one by one: a volume of 3 x 64 x 64 x 64 under windows of 3 x 5 x 7 took 4.4 ms on an H200. Of the
image that has 3 x 7 channels, padded with zeros, windows of 3 x 5 x 1 see the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute
from cutesmith.patterns.graph.window_attributes import Windows

MOST_CHANNELS = 8
"""Of an image whose elements are gathered."""

MOST_TAPS = 128
"""Channels of the other image."""


def with_taps_as_channels(graph: Graph) -> Graph:
    """The graph with convolutions of few channels over images whose channels are taps; right for the traced sizes."""
    build, changed = GraphBuilder(), set[int]()

    def maybe(node: Node) -> Node:
        build.origin = node.origin
        if node.op != "contract" or node.inputs[1].op != "windows" or (dim := _dimension(node)) is None:
            return node
        changed.add(id(node))
        return _over_taps(build, node, dim)

    rewritten = with_nodes(graph, maybe)
    return replace(rewritten, fixed_shapes=True) if changed else graph


def _dimension(node: Node) -> int | None:
    """The dimension of a convolution whose taps become channels: that of the fewest products with zeros."""
    factors, seen = node.inputs
    windows, image = Windows.of(seen), seen.inputs[0]
    channels = image.shape[-windows.rank - 1]
    if len(factors.shape) != 2 or windows.is_spread or windows.is_transposed or windows.taps_first:
        return None
    if channels > MOST_CHANNELS or ITEM_BYTES[image.dtype] > 4:
        return None
    several = [dim for dim, taps in enumerate(windows.taps) if taps > 1 and taps * channels <= MOST_TAPS]
    widened = {dim: _padded(image.dtype, channels * windows.taps[dim]) / windows.taps[dim] for dim in several}
    return min(several, key=lambda dim: (widened[dim], -dim), default=None)


def _padded(dtype: str, channels: int) -> int:
    """Channels with zeros after them: lines of 32, 64 or whole 128 bytes."""
    item = ITEM_BYTES[dtype]
    line = next((size for size in (32, 64) if channels * item <= size), 128) // item
    return -(-channels // line) * line


def _over_taps(build: GraphBuilder, node: Node, dim: int) -> Node:
    factors, seen = node.inputs
    windows, image = Windows.of(seen), seen.inputs[0]
    lead, rank = len(image.shape) - windows.rank - 1, windows.rank
    channels, sizes, taps = image.shape[lead], image.shape[-rank:], windows.taps[dim]
    count = windows.law(dim).of(sizes[dim])
    padded = _padded(image.dtype, channels * taps)

    places = tuple(count if at == dim else size for at, size in enumerate(sizes))
    shape = (*image.shape[:lead], *places, padded)
    at = [build.iota(shape, each) for each in range(len(shape))]
    channel, tap = (build(op, at[-1], taps) for op in ("floor_div", "remainder"))
    step, dilation, start = windows.step[dim], windows.dilation[dim], windows.start[dim]
    place = build("sub", build("add", build("mul", at[lead + dim], step), build("mul", tap, dilation)), start)
    coordinates = [*at[:lead], channel, *(place if each == dim else at[lead + each] for each in range(rank))]
    inside = [build("lt", at[-1], channels * taps), build("ge", place, 0), build("lt", place, sizes[dim])]
    other = build.stored(_taken(build, image, coordinates, inside, shape))
    other = push_permute(build, other, [*range(lead), lead + rank, *range(lead, lead + rank)])

    def others(values: Shape, one: int) -> Shape:
        return (*values[:dim], one, *values[dim + 1 :])

    rest = replace(
        windows,
        taps=others(windows.taps, 1),
        start=others(windows.start, 0),
        step=others(windows.step, 1),
        dilation=others(windows.dilation, 1),
        more=others(windows.more, 0),
    )
    depth = padded * math.prod(rest.taps)
    over = build.node("windows", (other,), (*seen.shape[:-2], depth, seen.shape[-1]), seen.dtype, rest)
    weights = _weights(build, factors, (channels, *windows.taps), dim, padded)
    return build.node("contract", (weights, over), node.shape, node.dtype, node.attrs)


def _weights(build: GraphBuilder, factors: Node, shape: Shape, dim: int, padded: int) -> Node:
    """The factors of each output, over channels and taps: those of the taps become channels, and zeros follow."""
    outputs, (channels, *taps) = factors.shape[0], shape
    whole = build.reshape(factors, (outputs, *shape))
    found = (outputs, padded, *(1 if each == dim else size for each, size in enumerate(taps)))
    at = [build.iota(found, each) for each in range(len(found))]
    channel, tap = (build(op, at[1], taps[dim]) for op in ("floor_div", "remainder"))
    coordinates = [at[0], channel, *(tap if each == dim else at[2 + each] for each in range(len(taps)))]
    value = _taken(build, whole, coordinates, [build("lt", at[1], channels * taps[dim])], found)
    return build.reshape(build.stored(value), (outputs, math.prod(found[1:])))


def _taken(build: GraphBuilder, source: Node, at: Sequence[Node], inside: Sequence[Node], shape: Shape) -> Node:
    """What lies at these coordinates, and 0 where one of the conditions does not hold."""
    held = inside[0]
    for each in inside[1:]:
        held = build("logical_and", held, each)
    source = source if source.op in IN_MEMORY else build.stored(source)
    return build("where", held, take(build, source, at, shape), build.constant(0, source.dtype))

"""Transposed convolutions with strides as ordinary ones: at each place of a stride other taps meet the elements.

Between the elements that a stride spreads there is nothing, and a kernel over all taps multiplies zeros there: seven of
eight products where three dimensions stride by two. The positions that meet the same taps are a phase; they see
neighbouring elements, so that a phase is a convolution of step 1. Phases with as many taps share a product, whose rows
are the outputs of each. One launch puts the positions of all phases in order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cutesmith.patterns.cutting.order import before_order
from cutesmith.patterns.graph.attributes import View, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.views import push_permute
from cutesmith.patterns.graph.window_attributes import DepthToSpace, Interleaving, Phase, Windows

MOST_POSITIONS = 50
"""Of one block: a thread puts the positions of one in order, in a loop that is unrolled; the DSL warns of 64."""

LEAST_CHANNELS = 16
"""Of an image that TMA reads."""

LINE_ELEMENTS = 4
"""Of products of float32 that TMA stores: lines are multiples of 16 bytes."""


@dataclass(frozen=True)
class Stride:
    """How positions along one dimension meet taps; `padding` are the positions left out before the first.

    Position o, with u = o + padding, is of the phase of tap t, the least one with t * dilation = u modulo the stride;
    of every `taps_apart`-th tap from there on it meets the element before, `apart` elements further on.
    """

    positions: int
    taps: int
    stride: int
    dilation: int
    padding: int

    @property
    def common(self) -> int:
        """Positions from one that meets a tap to the next that may."""
        return math.gcd(self.stride, self.dilation)

    @property
    def taps_apart(self) -> int:
        """From one tap of a phase to the next."""
        return self.stride // self.common

    @property
    def apart(self) -> int:
        """Elements between those that neighbouring taps of a phase meet."""
        return self.dilation // self.common

    @property
    def inverse(self) -> int:
        """What u is multiplied by to give its tap, modulo `taps_apart`."""
        return pow(self.apart, -1, self.taps_apart) if self.taps_apart > 1 else 0

    def tap_of(self, position: int) -> int | None:
        """The first tap of a position's phase; None where no tap can meet it."""
        u, left = divmod(position + self.padding, self.common)
        return None if left else u * self.inverse % self.taps_apart

    def groups(self) -> Iterator[Group]:
        """The phases in groups that have as many taps, and positions."""
        full, more = divmod(self.taps, self.taps_apart)
        for first, count, taps in ((0, more, full + 1), (more, self.taps_apart - more, full)):
            ends = {at for step in range(self.stride) for at in (step, self.positions - 1 - step)}
            inside = [(at, self.tap_of(at)) for at in ends if 0 <= at < self.positions]
            met = [(at, tap) for at, tap in inside if tap is not None and first <= tap < first + count]
            if taps and met:
                places = [self.place_of(at, tap) for at, tap in met]
                yield Group(first, count, taps, min(places), max(places) - min(places) + 1)

    def place_of(self, position: int, tap: int) -> int:
        """Where a position is among those of its phase: at the element that its first tap meets."""
        return ((position + self.padding) // self.common - tap * self.apart) // self.taps_apart


@dataclass(frozen=True)
class Group:
    """Phases of `count` neighbouring first taps with `taps` each; their positions begin at element `begin`."""

    first: int
    count: int
    taps: int
    begin: int
    positions: int


def with_phases(graph: Graph, *, for_tma: bool = False, in_order: bool = False) -> Graph:
    """The graph with products for the phases of transposed convolutions that stride; right for the traced sizes.

    `for_tma`: images are stored with their channels side by side first, once for all phases, whose products on Hopper
    would each copy them so; and lines of products are as long as TMA can store, which a launch would move together
    otherwise. `in_order`: where all phases are one product, whose outputs each have their phases side by side; its own
    kernel can put them in order, with the work on each position before that. The graph itself where it has no such
    image.
    """
    build, changed = GraphBuilder(), set[int]()

    def maybe(node: Node) -> Node:
        build.origin = node.origin
        if node.op == "contract" and node.inputs[1].op == "windows" and _has_phases(node.inputs[1], for_tma, in_order):
            result = _by_phases(build, node, for_tma, in_order)
        elif not any(id(child) in changed for child in node.inputs):
            return node
        elif node.op == "reshape":
            result = build.reshape(node.inputs[0], node.shape)
        elif node.is_pointwise:
            value = build.expand(build(node.op, *node.inputs, dtype=node.dtype), node.shape)
            result = before_order(build, build.materialise(value))
        else:
            return node
        changed.add(id(result))
        return result

    rewritten = with_nodes(graph, maybe)
    return replace(rewritten, fixed_shapes=True) if changed else graph


def _has_phases(seen: Node, for_tma: bool, in_order: bool) -> bool:
    """Whether windows are of phases; with `for_tma` of an image of many channels."""
    windows, image = Windows.of(seen), seen.inputs[0]
    if not windows.is_spread or math.prod(windows.divisor) > MOST_POSITIONS:
        return False
    if in_order and any(stride.taps % stride.stride or stride.common > 1 for stride in _strides(seen)):
        return False
    if not all(any(stride.groups()) for stride in _strides(seen)):
        return False  # no position has a product
    return not for_tma or image.shape[-windows.rank - 1] >= LEAST_CHANNELS


def _strides(seen: Node) -> list[Stride]:
    """Of each dimension of an image that windows see."""
    windows, sizes = Windows.of(seen), seen.inputs[0].shape[-Windows.of(seen).rank :]
    return [
        Stride(windows.law(dim).of(size), taps, windows.divisor[dim], -windows.dilation[dim], -windows.start[dim])
        for dim, (size, taps) in enumerate(zip(sizes, windows.taps, strict=True))
    ]


def _by_phases(build: GraphBuilder, node: Node, for_tma: bool, in_order: bool) -> Node:
    """The product of weights and windows as those of its phases, put in order."""
    factors, seen = node.inputs
    windows, image = Windows.of(seen), seen.inputs[0]
    lead, channels = image.shape[: -windows.rank - 1], image.shape[-windows.rank - 1]
    whole = build.reshape(factors, (*factors.shape[:-1], channels, *windows.taps))
    whole = whole if whole.op in IN_MEMORY else build.stored(whole)
    strides = _strides(seen)
    shape = (*lead, node.shape[-2], *(stride.positions for stride in strides))
    groups = [list(stride.groups()) for stride in strides]
    choices = list(itertools.product(*groups))
    if for_tma:
        choices = list(map(_with_whole_lines, choices))
        if len(choices) > 1 and Viewed.of(image).stride[len(lead)] != 1:
            image = _with_channels_last(build, image, len(lead))
    kind = compute_dtype(node.dtype)
    if in_order:
        product = _product(build, node, image, whole, strides, choices[0], outputs_first=True)
        result = build.node("depth_to_space", (product,), shape, kind, _in_space(strides, choices[0]))
    else:
        products = list[Node]()
        for chosen in choices:
            product = build.stored(_product(build, node, image, whole, strides, chosen))
            counts, places = ([getattr(group, name) for group in chosen] for name in ("count", "positions"))
            products.append(build.reshape(product, (*lead, *counts, node.shape[-2], *places)))
        order = Interleaving(tuple(map(_phases, strides, groups)))
        result = build.node("interleave", products, shape, kind, order)
    return build.reshape(build.retype(result, node.dtype), node.shape)


def _in_space(strides: Sequence[Stride], groups: Sequence[Group]) -> DepthToSpace:
    """Where the places of all phases are; with one group of phases the first is that of tap 0."""
    pairs = list(zip(strides, groups, strict=True))
    return DepthToSpace(
        places=tuple(group.positions for group in groups),
        strides=tuple(stride.stride for stride in strides),
        apart=tuple(stride.apart for stride in strides),
        first=tuple(stride.stride * group.begin - stride.padding for stride, group in pairs),
    )


def _with_whole_lines(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups with a few places more along the last dimension: all places are whole lines of 16 bytes."""
    *others, last = groups
    step = LINE_ELEMENTS // math.gcd(LINE_ELEMENTS, *(group.positions for group in others))
    return (*others, replace(last, positions=-(-last.positions // step) * step))


def _phases(stride: Stride, groups: Sequence[Group]) -> tuple[Phase | None, ...]:
    """Where positions 0, 1, … below a stride are."""
    found = list[Phase | None]()
    for position in range(stride.stride):
        tap = stride.tap_of(position) if position < stride.positions else None
        at = next((at for at, g in enumerate(groups) if tap is not None and g.first <= tap < g.first + g.count), None)
        if tap is None or at is None:
            found.append(None)
        else:
            first = stride.place_of(position, tap) - groups[at].begin
            found.append(Phase(at, tap - groups[at].first, first))
    return tuple(found)


def _with_channels_last(build: GraphBuilder, image: Node, at: int) -> Node:
    """The image, whose channels are dimension `at`, from a copy in which they lie side by side."""
    rank = len(image.shape)
    turned = push_permute(build, image, [*range(at), *range(at + 1, rank), at])
    stored = build.stored(build.node("cast", (turned,), turned.shape, turned.dtype))
    return push_permute(build, stored, [*range(at), rank - 1, *range(at, rank - 1)])


def _product(
    build: GraphBuilder,
    node: Node,
    image: Node,
    weight: Node,
    strides: Sequence[Stride],
    groups: Sequence[Group],
    *,
    outputs_first: bool = False,
) -> Node:
    """The product of the phases of a group along each dimension: (…, phases * outputs, places)."""
    rank, first = len(groups), len(weight.shape) - len(groups)
    for dim, (stride, group) in enumerate(zip(strides, groups, strict=True), first):
        weight = _of_phases(build, weight, dim, stride.taps_apart, group)
    *lead, outputs, channels = weight.shape[:first]
    order, phases = [*range(len(lead), first + rank)], [*range(first + rank, first + 2 * rank)]
    order = [*range(len(lead)), *(order[:1] + phases + order[1:] if outputs_first else phases + order)]
    weight = push_permute(build, weight, order)
    count, taps = math.prod(group.count for group in groups), tuple(group.taps for group in groups)
    depth, positions = channels * math.prod(taps), [group.positions for group in groups]
    ones, sizes = (1,) * rank, image.shape[-rank:]
    apart = [stride.apart * (group.taps - 1) for stride, group in zip(strides, groups, strict=True)]
    windows = Windows(
        taps=taps,
        start=tuple(-group.begin for group in groups),
        step=ones,
        dilation=tuple(-stride.apart for stride in strides),
        divisor=ones,
        more=tuple(
            group.positions - size + 2 * group.begin - reach
            for group, size, reach in zip(groups, sizes, apart, strict=True)
        ),
    )
    batch = image.shape[: -rank - 1]
    of_phases = build.node("windows", (image,), (*batch, depth, math.prod(positions)), image.dtype, windows)
    factors = build.reshape(weight, (*lead, count * outputs, depth))
    factors = factors if factors.op in IN_MEMORY else build.stored(factors)
    shape = (*batch, count * outputs, math.prod(positions))
    return build.node("contract", (factors, of_phases), shape, compute_dtype(node.dtype), node.attrs)


def _of_phases(build: GraphBuilder, weight: Node, dim: int, apart: int, group: Group) -> Node:
    """The taps of a group's phases along a dimension, those of each phase apart, and the phases as a last dimension."""
    length = (group.taps - 1) * apart + group.count
    code = View(f"{{0}}.narrow({dim}, {group.first}, {length}).unfold({dim}, {group.count}, {apart})")
    seen = build.view_in_memory(
        weight, code, lambda x: x.narrow(dim, group.first, length).unfold(dim, group.count, apart)
    )
    assert seen is not None
    return seen

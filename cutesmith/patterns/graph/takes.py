"""Builds `take` nodes: what lies at computed coordinates, of arguments or of values that are stored.

Pointwise work is taken through: an element of `relu(x)` is `relu` of an element of x. So the coordinates come down to
what lies in memory, and one kernel computes the coordinates, the loads and the work.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from cutesmith.patterns.graph.attributes import Constant, Gather, Iota, Scalar, Sized
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_nodes
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.shapes import Shape, dimension_groups, is_squeeze, kept_positions

READ_ANYWHERE = frozenset({"take", "search"})
"""Operations that read their first input, which lies in memory, at places of their own."""


SHARED = 16
"""Elements of a take that have one coordinate: searching for it again takes longer than reading it."""


def take(
    build: GraphBuilder, source: Node, indices: Sequence[Node], shape: Shape, known: tuple[Node, Node] | None = None
) -> Node:
    """The value of `shape` whose elements are those of `source` at these coordinates, one for each of its dimensions.

    Indices are int64 and broadcast to the shape; an element outside of the source has any value. `known` is a value of
    the source's shape, and what it is at these coordinates.
    """
    taking = Taking(build, shape)
    if known is not None:
        taking.found[(id(known[0]), *map(id, indices))] = known[1]
    return taking.of(source, tuple(indices))


class Taking:
    """Takes of one shape, and what each comes to for the values that its source is made of."""

    def __init__(self, build: GraphBuilder, shape: Shape) -> None:
        self.build, self.shape = build, shape
        self.found: dict[tuple[int, ...], Node] = {}
        self.regrouped: dict[tuple[object, ...], list[Node]] = {}

    def of(self, source: Node, indices: tuple[Node, ...]) -> Node:
        """What `take` gives."""
        key = (id(source), *map(id, indices))
        if key not in self.found:
            self.found[key] = self._of(source, indices)
        return self.found[key]

    def _of(self, source: Node, indices: tuple[Node, ...]) -> Node:
        build = self.build
        if math.prod(source.shape) == 0:  # every element lies outside
            return build.expand(build.constant(0, source.dtype), self.shape)
        if math.prod(source.shape) == 1:
            return build.expand(build.reshape(source, ()), self.shape)
        source = build.settled(source)
        if source.op == "expand":
            return build.expand(self._broadcast(source.inputs[0], source.shape, indices), self.shape)
        if source.op == "iota":
            return indices[Iota.of(source).dim]
        if source.is_pointwise:
            inputs = [self._broadcast(each, source.shape, indices) for each in source.inputs]
            with build.as_of(source):
                return build(source.op, *inputs, dtype=source.dtype)
        if source.op == "reshape" and is_squeeze(source.inputs[0].shape, source.shape):
            kept = kept_positions(source.inputs[0].shape, source.shape)
            zero = build.constant(0, "int64")
            dims = range(len(source.inputs[0].shape))
            return self.of(source.inputs[0], tuple(indices[kept.index(at)] if at in kept else zero for at in dims))
        if source.op == "reshape" and (places := self._before_reshape(source, indices)):
            return self.of(source.inputs[0], places)
        if source.op == "take":
            inner, *steps = source.inputs
            return self.of(inner, tuple(self._broadcast(each, source.shape, indices) for each in steps))
        whole = source if source.op in IN_MEMORY else build.stored(source)
        given = [self._index(each) for each in indices]
        return build.node("take", (whole, *given), self.shape, source.dtype)

    def _before_reshape(self, source: Node, indices: Sequence[Node]) -> tuple[Node, ...]:
        """The coordinates in what the source is a reshape of; none where that has no elements."""
        old = source.inputs[0].shape
        places: dict[int, Node] = {}
        for before, after in dimension_groups(old, source.shape) or ():
            own = [indices[dim] for dim in after]
            sizes = tuple(source.shape[dim] for dim in after), tuple(old[dim] for dim in before)
            key = (*sizes, *map(id, own))
            if key not in self.regrouped:  # parts that are joined differ along one dimension
                self.regrouped[key] = self._regrouped(own, *sizes)
            places |= zip(before, self.regrouped[key], strict=True)
        return tuple(places[dim] for dim in sorted(places))

    def _regrouped(self, indices: Sequence[Node], sizes: Shape, old: Shape) -> list[Node]:
        """The coordinates along dimensions of the `old` sizes, which the indices along those of `sizes` are of."""
        build, place, places = self.build, self.build.constant(0, "int64"), list[Node]()
        for at, index in enumerate(indices):
            step = math.prod(sizes[at + 1 :])
            index = build("mul", index, step) if step != 1 else index
            place = build("add", place, index) if at else index
        for at, size in enumerate(old):
            step = math.prod(old[at + 1 :])
            inner = build("floor_div", place, step) if step > 1 else place
            places.append(build("remainder", inner, size) if at else inner)
        return places

    def _index(self, node: Node) -> Node:
        """A coordinate, stored where it is searched for once for many elements."""
        is_shared = math.prod(node.shape) * SHARED <= math.prod(self.shape)
        is_searched = is_shared and any(each.op == "search" for each in nodes_of((node,)))
        return self.build.stored(node) if is_searched else self.build.materialise(node)

    def _broadcast(self, node: Node, shape: Shape, indices: tuple[Node, ...]) -> Node:
        """The take of a value that is broadcast to the shape which the indices are of."""
        if math.prod(node.shape) == 1:
            return node if not node.shape else self.build.reshape(node, ())
        own = indices[len(shape) - len(node.shape) :]
        zero = self.build.constant(0, "int64")
        sizes = zip(own, node.shape, shape[len(shape) - len(node.shape) :], strict=True)
        return self.of(node, tuple(zero if size == 1 != full else index for index, size, full in sizes))


def joined_along(build: GraphBuilder, pieces: Sequence[Node], dim: int, dtype: str) -> Node:
    """The pieces joined along `dim`: the first one whose end lies after the coordinate, at its own coordinates."""
    ends = list(itertools.accumulate(each.shape[dim] for each in pieces))
    shape = (*pieces[0].shape[:dim], ends[-1], *pieces[0].shape[dim + 1 :])
    places = [build.iota(shape, at) for at in range(len(shape))]
    coordinate, taking = places[dim], Taking(build, shape)
    result, joined = None, list[tuple[int, Node]]()
    for piece, end in zip(reversed(pieces), reversed(ends), strict=True):
        start = end - piece.shape[dim]
        places[dim] = build("sub", coordinate, start) if start else coordinate
        joined.append((start, piece))
        part = taking.of(piece, tuple(places))
        result = part if result is None else build("where", build("lt", coordinate, end), part, result, dtype=dtype)
    assert result is not None
    if len(joined) > 1:
        build.joined[id(result)] = dim, joined
    return result


def unflipped(node: Node, dims: Sequence[int]) -> Node | None:
    """What a value is, flipped along these dimensions; None where it is not a flip."""
    if node.op != "take" or node.inputs[0].shape != node.shape:
        return None
    source, *places = node.inputs
    turned = [_is_flipped(place, dim, node.shape) for dim, place in enumerate(places)]
    plain = [place.op == "iota" and Iota.of(place).dim == dim for dim, place in enumerate(places)]
    wanted = [dim in {each % len(node.shape) for each in dims} for dim in range(len(node.shape))]
    fits = all(turn if flips else same for turn, same, flips in zip(turned, plain, wanted, strict=True))
    return source if fits else None


def _is_flipped(place: Node, dim: int, shape: Shape) -> bool:
    if place.op != "sub" or place.inputs[1].op != "iota" or place.inputs[0].op != "constant":
        return False
    return Iota.of(place.inputs[1]).dim == dim and Constant.of(place.inputs[0]).value == shape[dim] - 1


def is_own_place(place: Node, size: int, dim: int) -> bool:
    """Whether a place along a source's dimension of a size is the result's own along `dim`, from the right."""
    if place.op == "constant":
        return Constant.of(place).value == 0 and size == 1
    along = Iota.of(place).dim if place.op == "iota" else 0
    return place.op == "iota" and along - len(place.shape) == dim and place.shape[along] == size


def values_at(place: Node, coordinate: torch.Tensor) -> torch.Tensor:
    """A place at each coordinate of the result along the only dimension that it follows, for the traced sizes."""
    if place.op == "iota":
        return coordinate
    if (number := whole_number(place)) is not None:
        return torch.tensor(number)
    values: torch.Tensor = POINTWISE[place.op].torch(*(values_at(each, coordinate) for each in place.inputs))
    return values


def whole_number(node: Node) -> int | None:
    """A whole number that is known for the traced sizes, perhaps stretched over a shape."""
    while node.op == "cast" and node.dtype == "int64":
        (node,) = node.inputs
    if node.op == "scalar":
        return Scalar.of(node).size
    if node.op not in ("constant", "sized"):
        return None
    value = Sized.of(node).value if node.op == "sized" else Constant.of(node).value
    return int(value) if isinstance(value, int) or value.is_integer() else None


def with_takes(graph: Graph) -> Graph:
    """The graph with a `take` in place of each `gather`, which only reductions of rows have a use for."""
    if not any(node.op == "gather" for node in graph.nodes()):
        return graph
    build = GraphBuilder()

    def taken(node: Node) -> Node:
        if node.op != "gather":
            return node
        build.origin = node.origin
        source, index = node.inputs
        places = [index if at == Gather.of(node).dim else build.iota(node.shape, at) for at in range(len(node.shape))]
        return take(build, source, places, node.shape)

    return with_nodes(graph, taken)


def taken_inputs(graph: Graph) -> list[Node]:
    """The arguments that are read at computed coordinates, or searched."""
    sources = [node.inputs[0] for node in graph.nodes() if node.op in READ_ANYWHERE]
    return list({id(node): node for node in sources if node.op == "input"}.values())


def aligned_inputs(graph: Graph) -> list[Node]:
    """The arguments that broadcast to what is computed of them."""
    read = [each for node in graph.nodes() for each in node.inputs[1 if node.op in READ_ANYWHERE else 0 :]]
    found = {id(node): node for node in (*read, *graph.outputs) if node.op == "input"}
    return list(found.values())

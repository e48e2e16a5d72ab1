"""The text of an elementwise kernel whose results lie side by side: pairs of a stack, as those of a rotary embedding.

The last dimension of the result has two, four or eight elements, its lanes, each another function of what is read. A
thread computes the lanes of neighbouring places, so what it stores is a vector; views of an argument that lie a lane
apart, as `x[..., ::2]` and `x[..., 1::2]`, are read as one vector, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from cutesmith.patterns.elementwise.kernel import ElementwiseKernel, ElementwiseWriter, Tensor, value_of
from cutesmith.patterns.graph.attributes import Constant, Input, Iota, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.instructions import usual_instructions
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.size_laws import SizeLaw
from cutesmith.patterns.graph.takes import aligned_inputs, is_own_place
from cutesmith.patterns.writing.expressions import Emitter, is_fast
from cutesmith.patterns.writing.naming import as_stored

LANES = (2, 4, 8)


@dataclass(frozen=True)
class LanesKernel(ElementwiseKernel):
    """What `elementwise_lanes.py.j2` takes beside what the other templates do: which inputs have lanes side by side."""

    lanes: int
    joined: list[bool]
    instructions: int
    """Of a thread for one element of the result."""


@dataclass(frozen=True)
class LanedGraph:
    """A graph and what it comes to in each lane: of all outputs in the first lane, then in the next, without places."""

    graph: Graph
    lanes: tuple[tuple[Node, ...], ...]
    dim: int
    """From the end on."""

    @property
    def apart(self) -> Graph:
        """The graph whose outputs are those of all lanes, in that order."""
        return replace(self.graph, outputs=tuple(node for lane in self.lanes for node in lane), output_strides=())

    @property
    def inputs(self) -> list[Node]:
        """The arguments as the lanes see them."""
        return aligned_inputs(self.apart)


def may_have_lanes(graph: Graph, value: Node) -> bool:
    """Whether the last dimension is a few elements for all inputs, and they are told apart by where they lie."""
    return -1 in _short_dims(graph, value) and value.shape[-1] in LANES


def _short_dims(graph: Graph, value: Node) -> list[int]:
    """Dimensions, from the end on, that are a few elements for all inputs, which are told apart by where they lie."""
    rank, fixed = len(value.shape), not graph.holds_for_other_sizes
    along = {Iota.of(each).dim - len(each.shape) for each in nodes_of((value,)) if each.op == "iota"}
    short = [
        dim for dim in range(-1, -rank - 1, -1) if rank > 1 and 1 < value.shape[dim] <= max(LANES) and dim in along
    ]
    return [dim for dim in short if fixed or value.sizes[dim:][:1] == (SizeLaw.constant(value.shape[dim]),)]


def laned(graph: Graph) -> LanedGraph | None:
    """The lanes of a graph; None where the last dimension of its results is long, or a lane has places of its own."""
    return _along(graph, -1) if may_have_lanes(graph, value_of(graph.outputs[0])) else None


def sliced(graph: Graph) -> LanedGraph | None:
    """What a graph comes to at each place of another short dimension of its results; None where there is none."""
    dims = [dim for dim in _short_dims(graph, value_of(graph.outputs[0])) if dim != -1]
    found = next(filter(None, (_along(graph, dim) for dim in dims)), None)
    return found and replace(found, lanes=tuple(_stored_alike(lane, graph.outputs) for lane in found.lanes))


def _stored_alike(lane: Sequence[Node], outputs: Sequence[Node]) -> tuple[Node, ...]:
    """The values with the types of the results that they are slices of: a constant may have another one."""
    build, pairs = GraphBuilder(), zip(lane, outputs, strict=True)
    return tuple(v if v.dtype == o.dtype else build.node("cast", (v,), v.shape, o.dtype) for v, o in pairs)


def _along(graph: Graph, dim: int) -> LanedGraph | None:
    values = [value_of(output) for output in graph.outputs]
    build, count = GraphBuilder(), values[0].shape[dim]
    try:
        lanes = tuple(_Lane(build, number, dim).values(values) for number in range(count))
    except _HasPlacesError:
        return None
    return None if any(node.op == "iota" for node in nodes_of(sum(lanes, ()))) else LanedGraph(graph, lanes, dim)


class _HasPlacesError(Exception):
    """A lane is not a function of what lies at one place of its arguments."""


class _Lane:
    """What becomes of values at one coordinate along a dimension, counted from the end."""

    def __init__(self, build: GraphBuilder, number: int, dim: int) -> None:
        self.build, self.number, self.dim = build, number, dim
        self.found: dict[int, Node] = {}

    def values(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Those of outputs, in their full shape."""
        build = self.build
        return tuple(build.materialise(build.expand(self.of(node), _without(node.shape, self.dim))) for node in nodes)

    def of(self, node: Node) -> Node:
        if id(node) not in self.found:
            self.found[id(node)] = self._of(node)
        return self.found[id(node)]

    def _of(self, node: Node) -> Node:
        if node.op == "input":
            return _selected(self.build, node, self.number if node.shape[self.dim :][:1] != (1,) else 0, self.dim)
        if node.op == "iota":
            return self._coordinate(node)
        if node.op in LEAVES:
            return node
        if node.op == "take":
            return self._taken(node)
        if not node.is_pointwise:
            raise _HasPlacesError
        if node.op == "where" and (condition := self.of(node.inputs[0])).op == "constant":
            return self.build.retype(self.of(node.inputs[1 if Constant.of(condition).value else 2]), node.dtype)
        return self.build(node.op, *map(self.of, node.inputs), dtype=node.dtype)

    def _coordinate(self, node: Node) -> Node:
        along, dim = Iota.of(node).dim, len(node.shape) + self.dim
        if along == dim:
            return self.build.constant(self.number if node.shape[along] != 1 else 0, "int64")
        return node if dim < 0 else self.build.iota(_without(node.shape, self.dim), along - (along > dim))

    def _taken(self, node: Node) -> Node:
        """The source, perhaps at one coordinate of this dimension, where all others are those of the result."""
        source, *given = node.inputs
        places = [self.of(place) for place in given]
        if _are_own(places, source.shape):
            return self._lower(source, node)
        if len(source.shape) < -self.dim:
            raise _HasPlacesError
        at = places.pop(self.dim)
        is_inside = at.op == "constant" and 0 <= Constant.of(at).value < source.shape[self.dim]
        if not is_inside or not _are_own(places, _without(source.shape, self.dim)):
            raise _HasPlacesError
        return self._lower(_selected(self.build, source, int(Constant.of(at).value), self.dim), node)

    def _lower(self, source: Node, node: Node) -> Node:
        """The source without leading dimensions of size 1 that the result has not."""
        while len(source.shape) >= len(node.shape):
            found = self.build.view_in_memory(source, View("{0}.select(0, 0)"), lambda base: base.select(0, 0))
            assert found is not None
            source = found
        return source


def _are_own(places: Sequence[Node], shape: Sequence[int]) -> bool:
    """Whether places are the coordinates of the result, whose dimensions stand in the same order from the end on."""
    return all(map(is_own_place, places, shape, range(-len(shape), 0)))


def _without(shape: Shape, dim: int) -> Shape:
    """The other sizes of a shape, which may not reach to a dimension from the end on."""
    return tuple(size for at, size in enumerate(shape) if at != len(shape) + dim)


def _selected(build: GraphBuilder, node: Node, number: int, dim: int) -> Node:
    """An argument at one coordinate of a dimension from the end on; what was unsqueezed for it is as it was."""
    at = len(node.shape) + dim
    if at < 0:
        return node
    seen = Input.of(node)
    if seen.views and seen.views[-1] == View(f"{{0}}.unsqueeze({at})"):
        attrs = replace(seen, views=seen.views[:-1], stride=_without(seen.stride, dim))
        return build.node("input", (), _without(node.shape, dim), node.dtype, attrs)
    found = build.view_in_memory(node, View(f"{{0}}.select({at}, {number})"), lambda base: base.select(at, number))
    assert found is not None
    return found


class LanesWriter(ElementwiseWriter):
    """Writes it: the statements of all lanes of a place."""

    def __init__(self, graph: LanedGraph) -> None:
        self.lanes = graph.lanes
        self._read = graph.inputs
        self._lane_of = _side_by_side(self._read, len(graph.lanes))
        super().__init__(graph.graph)

    def kernel(self) -> LanesKernel:
        """The kernel."""
        kernel, nodes = super().kernel(), replace(self.graph, outputs=sum(self.lanes, ())).nodes()
        return LanesKernel(
            **{**{each.name: getattr(kernel, each.name) for each in fields(kernel)}, "has_tiles": False},
            lanes=len(self.lanes),
            joined=[self._is_joined(tensor.node) for tensor in self.inputs],
            instructions=usual_instructions(nodes, fast=is_fast(self.graph)) // len(self.lanes),
        )

    def read(self) -> tuple[list[Node], list[Node]]:
        """Of views a lane apart the first alone."""
        return [node for node in self._read if self._lane_of.get(id(node), (node, 0))[0] is node], []

    def body(self) -> list[str]:
        """The statements of all lanes of a place."""
        emitter = Emitter(self._leaf, fast=is_fast(self.graph), helpers=self.helpers)
        stores = [
            self.store(emitter, output, value, f"v * {len(self.lanes)} + {number}")
            for number, lane in enumerate(self.lanes)
            for output, value in zip(self.outputs, lane, strict=True)
        ]
        return [*emitter.lines, *stores]

    def _is_joined(self, node: Node) -> bool:
        return id(node) in self._lane_of

    def _input(self, node: Node) -> Tensor:
        """Views a lane apart as one tensor, whose last dimension is the lane."""
        if not self._is_joined(node):
            return super()._input(node)
        code, count = as_stored(Input.of(node).code(self.arguments), node.dtype), len(self.lanes)
        whole = f"{{0}}.as_strided((*{{0}}.shape, {count}), (*{{0}}.stride(), {{0}}.stride(-1) // {count}))"
        return Tensor(self.views.another(code.then(whole), f"{code.name}_lanes"), node.dtype, node)

    def element(self, node: Node, at: str) -> str:
        """An element of an input's vector, or a lane of it."""
        first, number = self._lane_of.get(id(node), (node, 0))
        return super().element(first, f"v * {len(self.lanes)} + {number}" if self._is_joined(node) else at)


def _side_by_side(nodes: Sequence[Node], lanes: int) -> dict[int, tuple[Node, int]]:
    """The views of arguments that lie a lane apart: the first of them, and which each is."""
    at = {place: node for node in reversed(nodes) for place in [_Place.of(node)]}
    found: dict[int, tuple[Node, int]] = {}
    for first in at:
        apart = first.apart(lanes)
        if apart and all(place in at for place in apart):
            numbers = {place: number for number, place in enumerate(apart)}
            met = [(node, numbers.get(_Place.of(node))) for node in nodes]
            found |= {id(node): (at[first], number) for node, number in met if number is not None}
    return found


@dataclass(frozen=True)
class _Place:
    """Where an argument is seen."""

    index: int
    dtype: str
    shape: Shape
    stride: Shape
    offset: int

    @classmethod
    def of(cls, node: Node) -> _Place:
        seen = Input.of(node)
        return cls(seen.index, node.dtype, node.shape, seen.stride, seen.offset)

    def apart(self, lanes: int) -> list[_Place]:
        """This and the next places, as many as lanes, where elements lie that far apart."""
        if self.shape[-1:] in ((), (1,)) or not self.stride[-1] or self.stride[-1] % lanes:
            return []
        step = self.stride[-1] // lanes
        return [replace(self, offset=self.offset + number * step) for number in range(lanes)]

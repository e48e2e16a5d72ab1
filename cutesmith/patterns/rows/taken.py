"""Elements that lie where an index says: lines of a table, as the bags of an embedding or a node's neighbours have.

A reduction across rows reads them where they lie: a vector is part of one line of the table, at places that threads
compute from the index. So what is gathered goes to registers and is combined there, and is nowhere in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from cutesmith.patterns.graph.attributes import Input, Iota
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, place_along, with_nodes
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.size_laws import Place, SizeLaw
from cutesmith.patterns.graph.takes import is_own_place

S = TypeVar("S")

FAR = 1 << 62
"""The stride of dimensions along which elements are not neighbours."""

OF_PLACES = frozenset({"constant", "sized", "scalar", "iota"})
"""Leaves that a place may have beside arguments."""


@dataclass(frozen=True)
class TakenInput(Input):
    """An argument that is read at places: the node's inputs, one for each dimension of the argument but the last.

    The node has the shape of what is read, and neighbours along the last dimension. `sources` are the dimensions of
    arguments that the argument's own are, where that is known; `own` those of its dimensions that are read in order,
    and for each the node's, counted from the end.
    """

    sources: tuple[Place | None, ...] = ()
    own: tuple[tuple[int, int], ...] = ()

    def dim_of(self, law: SizeLaw) -> int | None:
        """The dimension of the argument that has the size; None where none is known to."""
        is_plain = law == SizeLaw(0, 1, law.dims, 1) and len(law.dims) == 1
        return self.sources.index(law.dims[0]) if is_plain and law.dims[0] in self.sources else None

    def given_shape(self, node: Node) -> Shape:
        """What the argument gives to the shape of what is read: its sizes where it is read in order, else 1."""
        return self._in_order(lambda dim, at: node.shape[at], 1)

    def shape_code(self, name: str) -> str:
        """Code of what a tensor of this name gives to the shape of what is read: sizes of what is read in order."""
        return f"({', '.join(self._in_order(lambda dim, at: f'{name}.shape[{dim}]', '1'))},)"

    def _in_order(self, size: Callable[[int, int], S], one: S) -> tuple[S, ...]:
        """What is said of each dimension that is read in order, and `one` between them."""
        sizes = {at: size(dim, at) for dim, at in self.own}
        return tuple(sizes.get(at, one) for at in range(min(sizes), 0))


def is_taken(node: Node) -> bool:
    """Whether the node is an argument that is read at places."""
    return isinstance(node.attrs, TakenInput)


def nodes_of_places(arguments: Iterable[Node]) -> list[Node]:
    """What the places are computed from at which some of these arguments are read, and the steps to them."""
    return list(nodes_of(tuple(place for node in arguments if is_taken(node) for place in node.inputs)))


def with_taken_inputs(graph: Graph) -> Graph:
    """The graph with arguments that are read at places, for takes of lines; other takes stay as they are."""
    return with_nodes(graph, lambda node: _as_input(node) if _is_of_lines(node) else node)


def _as_input(node: Node) -> Node:
    source, *places = node.inputs
    seen = {each.name: getattr(source.attrs, each.name) for each in fields(Input)}
    stride = (FAR,) * (len(node.shape) - 1) + (1,)
    sources = tuple(place_along(source, dim) for dim in range(len(source.shape)))
    own = [(dim, at) for dim in range(len(places)) for at in range(-len(node.shape), 0) if _is_in_order(node, dim, at)]
    attrs = TakenInput(**{**seen, "stride": stride, "sources": sources, "own": tuple(own)})
    return replace(node, op="input", inputs=tuple(places[:-1]), attrs=attrs)


def _is_in_order(node: Node, dim: int, at: int) -> bool:
    """Whether a take reads a dimension of its source in order along its own, which is as long then."""
    source, *places = node.inputs
    return source.shape[dim] == node.shape[at] and is_own_place(places[dim], source.shape[dim], at)


def _is_of_lines(node: Node) -> bool:
    """Whether vectors of a take are parts of lines: neighbours are the argument's own, at places of a whole line."""
    if node.op != "take" or node.inputs[0].op != "input" or len(node.shape) < 2:
        return False
    source, *places, last = node.inputs
    is_whole = source.shape[-1] > 1 and is_own_place(last, source.shape[-1], -1)
    return is_whole and Input.of(source).stride[-1] == 1 and all(map(_is_of_line, places))


def _is_of_line(place: Node) -> bool:
    """Whether a place is computed from what a whole line has in common."""
    for node in nodes_of((place,)):
        if node.op == "iota" and Iota.of(node).dim == len(node.shape) - 1 and node.shape[-1] != 1:
            return False
        if node.op == "input" and (is_taken(node) or node.shape[-1:] not in ((), (1,))):
            return False
        if not (node.is_pointwise or node.op in OF_PLACES or node.op == "input"):
            return False
    return True

"""Rotary embeddings of the heads of a projection in its own kernel, with a norm of the heads before them or without.

An element meets that of the other half of its head. So the halves of all heads are two products of one left factor,
which one kernel sums up: a thread has both elements of a pair. It stores both halves side by side.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

import torch

from cutesmith.patterns.contraction.analysis import is_plain
from cutesmith.patterns.contraction.row_values import reduces_rows
from cutesmith.patterns.cutting.head_products import (
    Heads,
    Seen,
    Users,
    are_of_heads,
    has_heads,
    have_constant_columns,
    may_have_heads,
    read_of,
    with_ends,
)
from cutesmith.patterns.graph.attributes import Contraction, Iota, Reduction, Stored, View, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import dense_strides
from cutesmith.patterns.graph.takes import is_own_place, values_at, whole_number

COMBINED_BY = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}
"""How a reduction combines the halves of a row."""


def with_rotated_heads(graph: Graph) -> Graph:
    """The graph with such projections as two products for each head; itself without any."""
    return with_ends(graph, _ends_of)


def _ends_of(graph: Graph, product: Node, users: Users) -> dict[int, Node]:
    """What the function reads of a projection with rotated heads, by the ids of the values that it stands for."""
    if not may_have_heads(product) or not is_plain(product) or not any(node.op == "take" for node in graph.nodes()):
        return {}
    ways = (_Made.of(graph, product, count) for count in (None, 1))
    made = next((way for way in ways if are_of_heads(product, way.views)), None)
    if made is None or not any(node.op == "take" for node in made.nodes.values()):
        return {}
    view = made.views[0]
    fits = not graph.free_sizes or (made.count is None and have_constant_columns(view))
    if view.shape[-1] % 2 or not fits:
        return {}
    first = _Half(product, made, [])
    _Half(product, made, first.halves, first.build)
    read = read_of(graph, made.nodes, users)
    found = {id(node): end for node in read if (end := first.end(node)) is not None}
    return found if len(found) == len(read) else {}


@dataclass
class _Made:
    """What is made of a product, by id, with the dimensions that the function has it in; views with heads.

    `count` is how many heads there are, where their columns do not tell a view with heads from another.
    """

    product: Node
    count: int | None
    nodes: dict[int, Node] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    views: list[Node] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, product: Node, count: int | None) -> _Made:
        """Pointwise work, reductions of heads, and elements of stored values that are taken out of them."""
        made = cls(product, count, {id(product): product}, {id(product): Seen.WHOLE})
        for node in graph.nodes():
            seen = made._seen_of(node)
            if seen:
                made.nodes[id(node)], made.seen[id(node)] = node, seen
        return made

    def _seen_of(self, node: Node) -> Seen | None:
        kinds = {self.seen[id(child)] for child in node.inputs if id(child) in self.seen}
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        if kind is Seen.WHOLE and node.op == "reshape":
            if not has_heads(node, self.product, self.count):
                return kind
            self.views.append(node)
            return Seen.HEADS
        if node.op == "stored":
            return self._stored_as(node) if kind is Seen.HEADS else None
        is_taken = node.op == "take" and node.inputs[0].op == "stored"
        is_part = node.is_pointwise or is_taken or (kind is Seen.HEADS and reduces_rows(node, self.views[0].shape))
        return kind if is_part else None

    def _stored_as(self, node: Node) -> Seen | None:
        """In which dimensions a stored value is seen, whole or in part of its columns."""
        *rows, count, columns = self.views[0].shape
        *steps, step, one = dense_strides(self.views[0].shape)
        given = Stored.of(node)
        if node.inputs[0].shape != self.views[0].shape or given.stride[-1:] != (one,):
            return None
        if given.offset + node.shape[-1] > columns:
            return None
        ways = {Seen.HEADS: ([*rows, count], [*steps, step])}
        if len(rows) > 1:
            ways[Seen.TURNED] = [*rows[:-1], count, rows[-1]], [*steps[:-1], step, steps[-1]]
        for seen, (sizes, strides) in ways.items():
            same = all(n == 1 or a == b for n, a, b in zip(sizes, strides, given.stride, strict=False))
            if (*sizes,) == node.shape[:-1] and same:
                return seen
        return None


class _Half(Heads):
    """One half of the columns of each head; `halves` are all."""

    def __init__(self, product: Node, made: _Made, halves: list[_Half], build: GraphBuilder | None = None) -> None:
        self.kinds, self.halves, self.number = made.seen, halves, len(halves)
        halves.append(self)
        self.width = made.views[0].shape[-1] // 2
        super().__init__(build or GraphBuilder(), product, made.views[0], made.nodes)

    def products(self) -> Node | None:
        """A product for each head, one of two that a kernel sums up together."""
        left, right = self.product.inputs
        seen = self.apart(right)
        half = seen and self._half(seen)
        reduces = any(reduces_rows(node, self.seen) for node in self.made.values())
        attrs = replace(Contraction.of(self.product), rows=reduces, dual=True)
        shape = self.count, self.rows, self.width
        return half and self.build.node("contract", (left, half), shape, self.product.dtype, attrs)

    def _half(self, node: Node) -> Node | None:
        """The columns of this half of what has those of a head."""
        code = View(f"{{0}}.chunk(2, -1)[{self.number}]")
        return self.view(node, code, lambda x: x.chunk(2, -1)[self.number])

    def end(self, node: Node) -> Node | None:
        """Both halves side by side, where the function has them."""
        seen = self.kinds[id(node)]
        if seen is Seen.WHOLE or node.shape[-1] != self.columns or node.op == "take":
            return None
        values = [half.of(node, seen) for half in self.halves]
        halves = [self.stretched(value, self.width) for value in values if value is not None]
        if len(halves) < len(values):
            return None
        shape = self.count, self.rows, self.columns
        whole = self.placed(self.build.node("halves", halves, shape, node.dtype))
        if seen is Seen.HEADS:
            return whole
        return self.view(self.build.stored(whole), View("{0}.transpose(-3, -2)"), lambda x: x.transpose(-3, -2))

    def made_of_heads(self, node: Node, seen: Seen) -> Node | None:
        """The same of this half."""
        if id(node) in self.kinds:
            seen = self.kinds[id(node)]
        if node.op == "take":
            return self._taken(node, seen)
        if node.op == "where" and follows_columns(node.inputs[0]):
            return self._chosen(node, seen)
        if node.op == "stored" and id(node) in self.kinds:
            return self.of(node.inputs[0], Seen.HEADS) if node.shape[-1] == self.columns else None
        return super().made_of_heads(node, seen)

    def operand(self, node: Node, seen: Seen) -> Node | None:
        """What is in memory of this half of the columns."""
        found = super().operand(node, seen)
        return self._half(found) if found and found.shape[-1] == self.columns else found

    def reduced(self, node: Node) -> Node | None:
        """A value of each row, of both halves."""
        values = [half.of(node.inputs[0], Seen.HEADS) for half in self.halves]
        known = [self.stretched(value, self.width) for value in values if value is not None]
        if node.op not in COMBINED_BY or len(known) < len(values):
            return None
        whole = functools.reduce(functools.partial(self.build, COMBINED_BY[node.op]), known)
        whole = self.build("mul", whole, 1 / len(known)) if node.op == "mean" else whole
        attrs = Reduction((2,))
        return self.build.node(node.op, (whole,), (*whole.shape[:2], 1), node.dtype, attrs)

    def _taken(self, node: Node, seen: Seen) -> Node | None:
        """The elements of a half that are taken for this one, each in its place: of heads, or of a table."""
        source, *others, last = node.inputs
        sizes, dims = source.shape[:-1], range(-len(source.shape), -1)
        is_made = id(source) in self.kinds
        if not (is_made or source.op == "input") or not all(map(is_own_place, others, sizes, dims)):
            return None
        first = self._first(last) if follows_columns(last) else None
        if first is None:
            return None
        first += Viewed.of(source).offset if is_made else 0
        if first not in (0, self.width) or first + self.width > (self.columns if is_made else source.shape[-1]):
            return None
        half = self.halves[first // self.width]
        return half.of(source.inputs[0], Seen.HEADS) if is_made else half.operand(source, seen)

    def _first(self, place: Node) -> int | None:
        """The first of the places of this half; None where they do not follow each other."""
        places = self._at_columns(place)
        return int(places[0]) if torch.equal(places - places[0], torch.arange(self.width)) else None

    def _chosen(self, node: Node, seen: Seen) -> Node | None:
        """What a condition of the column chooses for this half; None where it does not choose one for all of it."""
        holds = self._at_columns(node.inputs[0])
        if holds.any() != holds.all():
            return None
        value = self.of(node.inputs[1 if holds.all() else 2], seen)
        return value and self.build.retype(value, node.dtype)

    def _at_columns(self, node: Node) -> torch.Tensor:
        """A value that follows the column, at those of this half."""
        return values_at(node, torch.arange(self.number * self.width, (self.number + 1) * self.width))


def follows_columns(node: Node) -> bool:
    """Whether a value follows the coordinate along the last dimension, and nothing else."""
    leaves = [each for each in nodes_of((node,)) if not each.is_pointwise]
    columns = [each for each in leaves if each.op == "iota" and Iota.of(each).dim == len(each.shape) - 1]
    return bool(columns) and all(each in columns or whole_number(each) is not None for each in leaves)

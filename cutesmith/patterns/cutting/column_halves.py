"""Halves of a product's columns as two products of one left factor, which one kernel sums up: a gate beside its values.

Gated layers often have both weights in one matrix. The halves of its product would be stored, and read by a launch of
their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutesmith.patterns.contraction.analysis import is_plain
from cutesmith.patterns.graph.attributes import Stored, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, users_of, with_changes
from cutesmith.patterns.graph.shapes import dense_strides, without_ones
from cutesmith.patterns.graph.size_laws import Size


@dataclass(frozen=True)
class Columns:
    """Some of the columns of a product: the first one and their number, as traced and as they follow from arguments."""

    start: int
    width: int
    sizes: tuple[Size, ...]

    def of(self, build: GraphBuilder, node: Node) -> Node:
        """A product, or pointwise work on it, in these columns alone."""
        shape = (*node.shape[:-1], self.width)
        if node.op == "contract":
            left, right = node.inputs
            return build.node("contract", (left, self._seen(build, right)), shape, node.dtype, node.attrs)
        if node.op == "reshape":
            return build.reshape(self.of(build, node.inputs[0]), shape)
        if node.op in IN_MEMORY:
            return self._seen(build, node)
        inputs = [self.of(build, each) if each.shape[-1:] == node.shape[-1:] else each for each in node.inputs]
        return build.materialise(build.expand(build(node.op, *inputs, dtype=node.dtype), shape))

    def _seen(self, build: GraphBuilder, node: Node) -> Node:
        dim = len(node.shape) - 1
        code = View(f"{{0}}.narrow({dim}, {{1}}, {{2}})", self.sizes)
        seen = build.view_in_memory(node, code, lambda x: x.narrow(dim, self.start, self.width))
        assert seen is not None
        return seen


def with_column_halves(graph: Graph) -> Graph:
    """The graph with such products in halves; itself where it has none."""
    users = users_of(graph)
    products = [node for node in graph.nodes() if node.op == "contract" and is_plain(node)]
    halves = {key: columns for each in products for key, columns in _halves_of(graph, each, users).items()}
    if not halves:
        return graph
    build = GraphBuilder()

    def change(original: Node, node: Node) -> Node:
        build.origin = node.origin
        if id(original) in halves:
            return build.reshape(halves[id(original)].of(build, node.inputs[0]), node.shape)
        if node is original:
            return node
        if node.is_pointwise:
            return build.materialise(build.expand(build(node.op, *node.inputs, dtype=node.dtype), node.shape))
        return build.reshape(node.inputs[0], node.shape) if node.op == "reshape" else node

    return with_changes(graph, change)


def _halves_of(graph: Graph, product: Node, users: Mapping[int, Sequence[Node]]) -> dict[int, Columns]:
    """The views of a product, or of pointwise work on it, by id; none unless they are its halves."""
    if product.inputs[1].op not in IN_MEMORY:
        return {}
    found, made, seen = dict[int, Node](), [product], set[int]()
    while made:
        node = made.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if any(node is output for output in graph.outputs):
            return {}
        for user in users[id(node)]:
            if user.op == "stored":
                found[id(user)] = user
            elif user.shape[-1:] == product.shape[-1:] and (user.is_pointwise or user.op == "reshape"):
                made.append(user)
            else:
                return {}
    width, views = product.shape[-1] // 2, found.values()
    if {Stored.of(view).offset for view in views} != {0, width}:
        return {}
    if not all(_is_half(view, width, free=graph.free_sizes) for view in views):
        return {}
    return {id(view): Columns(Stored.of(view).offset, width, Stored.of(view).views[0].sizes) for view in views}


def _is_half(view: Node, width: int, *, free: bool) -> bool:
    """Whether a view is half of the columns of all rows, in any shape; where sizes are free, for all of them."""
    seen = Stored.of(view)
    *rows, columns = seen.root[0]
    if columns != 2 * width or view.shape[-1:] != (width,) or math.prod(view.shape[:-1]) != math.prod(rows):
        return False
    dense = dense_strides((*view.shape[:-1], columns))
    in_order = all(size == 1 or a == b for size, a, b in zip(view.shape, seen.stride, dense, strict=True))
    is_free = all(each.is_proven for each in seen.views) and without_ones(view.shape[:-1]) == without_ones(tuple(rows))
    return in_order and len(seen.views[0].sizes) == 2 and (is_free or not free)

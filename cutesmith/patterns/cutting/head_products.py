"""Norms of the heads of a projection in its own kernel: each head is a product of its own, whose rows fit a tile.

A projection (rows, heads * D) that is seen as (…, heads, D), and reduced along D, becomes a product for each head,
(heads, rows, D), of one left factor. A tile then has whole rows of a head, and stores them where they lie in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from cutesmith.patterns.contraction.row_values import MOST_COLUMNS, reduces_rows
from cutesmith.patterns.graph.attributes import Contraction, Reduction, Reshaping, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, users_of, with_values
from cutesmith.patterns.graph.reshape_views import reshape_view
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.size_laws import SizeLaw


def with_heads_as_products(graph: Graph) -> Graph:
    """The graph with such projections as a product for each head; itself without any.

    Where a kernel must hold for other sizes, those whose heads always have as many columns.
    """
    while ends := _ends_of_one(graph):
        graph = with_values(graph, ends)
    return graph


def _ends_of_one(graph: Graph) -> dict[int, Node]:
    """What the function reads of the first projection with heads, by the ids of the values that it stands for."""
    users = users_of(graph)
    for product in graph.nodes():
        heads = _heads_of(graph, product) if product.op == "contract" else None
        ends = heads.ends(graph, users) if heads else {}
        if ends:
            return ends
    return {}


def _heads_of(graph: Graph, product: Node) -> _Heads | None:
    """Those of a projection of two matrices in memory whose functions are all of one view of it."""
    if len(product.shape) != 2 or 0 in product.shape or any(side.op not in IN_MEMORY for side in product.inputs):
        return None
    for count in (None, 1):
        made, views = _made_of(graph, product, count)
        if len({view.shape for view in views}) == 1 and _splits_columns(product, views[0]):
            width = Reshaping.of(views[0]).view.sizes[-1:] if count is None else ()
            is_constant = bool(width) and isinstance(width[0], SizeLaw) and not width[0].terms
            return _Heads(product, views[0], made) if is_constant or not graph.free_sizes else None
    return None


def _made_of(graph: Graph, product: Node, count: int | None) -> tuple[set[int], list[Node]]:
    """The ids of what is made of a product, and its views with heads; so many where they are not told by their columns.

    Up to reductions of heads, and to what is another view of those.
    """
    whole, split, views = {id(product)}, set[int](), list[Node]()
    for node in graph.nodes():
        of_whole = any(id(child) in whole for child in node.inputs)
        if node.op == "reshape" and of_whole:
            has_heads = node.shape[-1] != product.shape[-1] if count is None else node.shape[-2:-1] == (count,)
            (split if has_heads else whole).add(id(node))
            views += [node] if has_heads else []
        elif any(id(child) in split for child in node.inputs) and (node.is_pointwise or node.is_reduction):
            split.add(id(node))
        elif of_whole and node.is_pointwise:
            whole.add(id(node))
    return whole | split, views


def _splits_columns(product: Node, view: Node) -> bool:
    *rows, heads, columns = (1, *view.shape)
    return (math.prod(rows), heads * columns) == product.shape and 1 < columns <= MOST_COLUMNS


class _Heads:
    """The functions of one projection as those of its heads, (heads, rows, D).

    `made` are the ids of the values that are made of it.
    """

    def __init__(self, product: Node, view: Node, made: set[int]) -> None:
        self.build, self.product, self.seen, self.made = GraphBuilder(), product, view.shape, made
        self.sizes = Reshaping.of(view).view.sizes
        self.rows, self.count, self.columns = product.shape[0], *view.shape[-2:]
        self.found: dict[tuple[int, bool], Node | None] = {(id(product), False): self._products()}

    def _products(self) -> Node | None:
        """A product for each head, whose kernel reduces their rows."""
        left, right = self.product.inputs
        seen, shape = self._apart(right), (self.count, self.rows, self.columns)
        attrs = replace(Contraction.of(self.product), rows=True)
        return seen and self.build.node("contract", (left, seen), shape, self.product.dtype, attrs)

    def ends(self, graph: Graph, users: Mapping[int, Sequence[Node]]) -> dict[int, Node]:
        """What is read of the projection, as it is made of its heads; {} where that is not all of one shape."""
        results, nodes = set(map(id, graph.outputs)), [node for node in graph.nodes() if id(node) in self.made]
        read = [n for n in nodes if id(n) in results or any(id(user) not in self.made for user in users[id(n)])]
        reduces = any(reduces_rows(node, self.seen) for node in nodes)
        found = [self.of(node, split=True) if node.shape == self.seen else None for node in read]
        if not reduces or any(value is None for value in found):
            return {}
        return {id(node): self._seen(value) for node, value in zip(read, found, strict=True) if value is not None}

    def of(self, node: Node, *, split: bool) -> Node | None:
        """A value as it is of heads, read in their view (`split`) or before it; None where that takes a copy."""
        if (id(node), split) not in self.found:
            self.build.origin = node.origin
            self.found[id(node), split] = self._of(node, split)
        return self.found[id(node), split]

    def _of(self, node: Node, split: bool) -> Node | None:
        if math.prod(node.shape) == 1 and id(node) not in self.made:
            return self.build.reshape(node, ())
        if node.op == "reshape" and id(node) in self.made:
            return self.of(node.inputs[0], split=False)
        if reduces_rows(node, self.seen):
            value = self.of(node.inputs[0], split=True)
            attrs = replace(Reduction.of(node), dims=(2,))
            return value and self.build.node(node.op, (value,), (*value.shape[:2], 1), node.dtype, attrs)
        if node.is_pointwise:
            inputs = [each for child in node.inputs if (each := self.of(child, split=split)) is not None]
            is_whole = len(inputs) == len(node.inputs)
            shape = broadcast([each.shape for each in inputs])
            return self.build.with_inputs(node, inputs, shape) if is_whole else None
        if node.op not in IN_MEMORY:
            return None
        return self._operand(node) if split else self._split(node)

    def _split(self, node: Node) -> Node | None:
        """What is in memory for each row and column, or one of them, as it is for each head: (heads, rows or 1, D)."""
        *rows, columns = node.shape
        if math.prod(rows) == 1:
            flat: Node | None = self.build.reshape(node, (1, columns))
        else:
            flat = self._merged(node, -2) if math.prod(rows) == self.rows else None
        return flat if flat is None or columns == 1 else self._apart(flat)

    def _apart(self, matrix: Node) -> Node | None:
        """The columns of each head as a matrix."""
        if self.count == 1:
            return self._view(matrix, View("{0}.unsqueeze(0)"), lambda x: x.unsqueeze(0))
        code, own = "{0}.unflatten(-1, ({1}, {2})).movedim(-2, 0)", (self.count, self.columns)
        return self._view(matrix, View(code, self.sizes[-2:]), lambda x: torch.unflatten(x, -1, own).movedim(-2, 0))

    def _operand(self, node: Node) -> Node | None:
        """What is in memory in the view of the heads as (heads or 1, rows or 1, D or 1)."""
        *rows, count, _ = (1,) * (len(self.seen) - len(node.shape)) + node.shape
        if math.prod(rows) == 1:
            last = node.shape[-2:] if count > 1 else node.shape[-1:]
            seen = self.build.reshape(node, last)
            return seen if count == 1 else self._view(seen, View("{0}.unsqueeze(1)"), lambda x: x.unsqueeze(1))
        flat = self._merged(node, -3) if tuple(rows) == self.seen[:-2] else None
        return flat and self._view(flat, View("{0}.movedim(-2, 0)"), lambda x: x.movedim(-2, 0))

    def _merged(self, node: Node, last: int) -> Node | None:
        """With all dimensions up to `last` as one; None where they do not follow each other in memory."""
        if len(node.shape) == -last:
            return node
        shape = self.rows, *node.shape[last + 1 :]
        return self._view(node, View(f"{{0}}.flatten(0, {last})"), lambda x: x.view(shape))

    def _view(self, node: Node, code: View, view: Callable[[torch.Tensor], torch.Tensor]) -> Node | None:
        return self.build.view_in_memory(node, code, view)

    def _seen(self, value: Node) -> Node:
        """The values of heads where the function has them: rows before heads, which takes no launch."""
        value = self.build.materialise(self.build.expand(value, (self.count, self.rows, self.columns)))
        if self.count == 1:
            view = self._with_laws(reshape_view(value.shape, self.seen))
            return self.build.node("reshape", (value,), self.seen, value.dtype, Reshaping(view))
        seen = self._view(self.build.stored(value), View("{0}.transpose(0, 1)"), lambda x: x.transpose(0, 1))
        if seen and seen.shape != self.seen:
            seen = self._view(seen, self._with_laws(reshape_view(seen.shape, self.seen)), lambda x: x.view(self.seen))
        assert seen is not None
        return self.build.node("cast", (seen,), self.seen, value.dtype)

    def _with_laws(self, view: View) -> View:
        """A view that splits the rows, of the sizes that the function gives them."""
        return View(view.source, self.sizes[: len(view.sizes)])

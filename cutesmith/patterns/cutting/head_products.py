"""Norms of the heads of a projection in its own kernel: each head is a product of its own, whose rows fit a tile.

A projection (rows, heads * D) that is seen as (…, heads, D), and reduced along D, becomes a product for each head,
(heads, rows, D), of one left factor. A tile then has whole rows of a head, and stores them where they lie in the end.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from cutesmith.patterns.contraction.row_values import MOST_COLUMNS, reduces_rows
from cutesmith.patterns.cutting.stored_values import seen_once
from cutesmith.patterns.graph.attributes import Contraction, Reduction, Reshaping, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, users_of, with_values
from cutesmith.patterns.graph.reshape_views import reshape_view
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.size_laws import Size, SizeLaw

Users = Mapping[int, Sequence[Node]]


class Seen(enum.Enum):
    """In which dimensions a function has values of a projection."""

    WHOLE = enum.auto()
    """(…, heads * D)"""
    HEADS = enum.auto()
    """(…, rows, heads, D)"""
    TURNED = enum.auto()
    """(…, heads, rows, D)"""


def with_heads_as_products(graph: Graph) -> Graph:
    """The graph with such projections as a product for each head; itself without any.

    Where a kernel must hold for other sizes, those whose heads always have as many columns.
    """
    return with_ends(graph, _ends_of)


def with_ends(graph: Graph, ends_of: Callable[[Graph, Node, Users], dict[int, Node]]) -> Graph:
    """The graph with other nodes in place of what it reads of one product after the other."""
    products = [node for node in graph.nodes() if node.op == "contract"]
    users = users_of(graph)
    ends = next((ends for product in products if (ends := ends_of(graph, product, users))), {})
    changed = _with_views_once(with_values(graph, ends)) if ends else None
    return with_ends(changed, ends_of) if changed else graph


def _with_views_once(graph: Graph) -> Graph | None:
    """The graph with one view in place of two, as of heads that are stored in another order; None where two stay."""
    nested = [node for node in graph.nodes() if node.op == "stored" and node.inputs[0].op == "stored"]
    once = {id(node): seen for node in nested if (seen := seen_once(node))}
    if len(once) < len(nested):
        return None
    return _with_views_once(with_values(graph, once)) if once else graph


def _ends_of(graph: Graph, product: Node, users: Users) -> dict[int, Node]:
    """What the function reads of a projection with heads, by the ids of the values that it stands for."""
    if not may_have_heads(product):
        return {}
    for count in (None, 1):
        made, views = _made_of(graph, product, count)
        if are_of_heads(product, views):
            fits = count is None and have_constant_columns(views[0])
            fits = (fits or not graph.free_sizes) and any(reduces_rows(node, views[0].shape) for node in made.values())
            return Heads(GraphBuilder(), product, views[0], made).ends(graph, users) if fits else {}
    return {}


def may_have_heads(product: Node) -> bool:
    """Whether it is a product of two matrices in memory."""
    in_memory = all(side.op in IN_MEMORY for side in product.inputs)
    return len(product.shape) == 2 and 0 not in product.shape and in_memory


def are_of_heads(product: Node, views: Sequence[Node]) -> bool:
    """Whether all views of a product split its columns in one way into heads that a tile may have rows of."""
    if len({view.shape for view in views}) != 1:
        return False
    *rows, heads, columns = (1, *views[0].shape)
    return (math.prod(rows), heads * columns) == product.shape and 1 < columns <= MOST_COLUMNS


def have_constant_columns(view: Node) -> bool:
    """Whether heads have as many columns for all sizes."""
    (width,) = Reshaping.of(view).view.sizes[-1:] or (0,)
    return isinstance(width, SizeLaw) and not width.terms


def _made_of(graph: Graph, product: Node, count: int | None) -> tuple[dict[int, Node], list[Node]]:
    """What is made of a product, by id, and its views with heads: so many where their columns do not tell.

    Up to reductions of heads, and to what is another view of those.
    """
    whole, split, views = {id(product): product}, dict[int, Node](), list[Node]()
    for node in graph.nodes():
        of_whole = any(id(child) in whole for child in node.inputs)
        if node.op == "reshape" and of_whole:
            is_split = has_heads(node, product, count)
            (split if is_split else whole)[id(node)] = node
            views += [node] if is_split else []
        elif any(id(child) in split for child in node.inputs) and (node.is_pointwise or node.is_reduction):
            split[id(node)] = node
        elif of_whole and node.is_pointwise:
            whole[id(node)] = node
    return whole | split, views


def has_heads(view: Node, product: Node, count: int | None) -> bool:
    """Whether a reshape of a product has heads, so many where their columns do not tell."""
    if len(view.shape) < 2:
        return False
    return view.shape[-1] != product.shape[-1] if count is None else view.shape[-2:-1] == (count,)


class Heads:
    """The functions of one projection as those of its heads, (heads, rows, D).

    `made` is what is made of it, by id; `view` the first that has heads.
    """

    def __init__(self, build: GraphBuilder, product: Node, view: Node, made: Mapping[int, Node]) -> None:
        self.build, self.product, self.seen, self.made = build, product, view.shape, made
        self.sizes: tuple[Size, ...] = Reshaping.of(view).view.sizes
        self.rows, self.count, self.columns = product.shape[0], *view.shape[-2:]
        self.found: dict[tuple[int, Seen], Node | None] = {(id(product), Seen.WHOLE): self.products()}

    def products(self) -> Node | None:
        """A product for each head, whose kernel reduces their rows."""
        left, right = self.product.inputs
        seen = self.apart(right)
        attrs = replace(Contraction.of(self.product), rows=True)
        shape = self.count, self.rows, self.columns
        return seen and self.build.node("contract", (left, seen), shape, self.product.dtype, attrs)

    def ends(self, graph: Graph, users: Users) -> dict[int, Node]:
        """What is read of the projection, as it is made of its heads; {} where that is not all of one shape."""
        found = {id(node): self.end(node) for node in read_of(graph, self.made, users)}
        ends = {key: end for key, end in found.items() if end is not None}
        return ends if len(ends) == len(found) else {}

    def end(self, node: Node) -> Node | None:
        """What is read of the projection where the function has it."""
        value = self.of(node, Seen.HEADS) if node.shape == self.seen else None
        return value and self.placed(self.stretched(value, self.columns))

    def of(self, node: Node, seen: Seen) -> Node | None:
        """A value as it is of heads, which the function reads beside others as `seen`; None where that takes a copy."""
        if (id(node), seen) not in self.found:
            self.build.origin = node.origin
            self.found[id(node), seen] = self.made_of_heads(node, seen)
        return self.found[id(node), seen]

    def made_of_heads(self, node: Node, seen: Seen) -> Node | None:
        """The same, computed."""
        if math.prod(node.shape) == 1 and id(node) not in self.made:
            return self.build.reshape(node, ())
        if node.op == "reshape" and id(node) in self.made:
            return self.of(node.inputs[0], Seen.WHOLE)
        if reduces_rows(node, self.seen):
            return self.reduced(node)
        if node.is_pointwise:
            inputs = [each for child in node.inputs if (each := self.of(child, seen)) is not None]
            shape = broadcast([each.shape for each in inputs])
            return self.build.with_inputs(node, inputs, shape) if len(inputs) == len(node.inputs) else None
        return self.operand(node, seen) if node.op in IN_MEMORY else None

    def reduced(self, node: Node) -> Node | None:
        """A value of each row of a head."""
        value = self.of(node.inputs[0], Seen.HEADS)
        attrs = replace(Reduction.of(node), dims=(2,))
        return value and self.build.node(node.op, (value,), (*value.shape[:2], 1), node.dtype, attrs)

    def operand(self, node: Node, seen: Seen) -> Node | None:
        """What is in memory as (heads or 1, rows or 1, D or 1)."""
        if seen is Seen.WHOLE:
            return self._split(node)
        if seen is Seen.TURNED and len(node.shape) > 2:
            turned = self.view(node, View("{0}.transpose(-3, -2)"), lambda x: x.transpose(-3, -2))
            return turned and self.operand(turned, Seen.HEADS)
        if seen is Seen.TURNED:  # a number of each row has no heads
            node = self.build.reshape(node, (*node.shape[:-1], 1, *node.shape[-1:]))
        *rows, count, _ = (1,) * (len(self.seen) - len(node.shape)) + node.shape
        if math.prod(rows) == 1:
            last = self.build.reshape(node, node.shape[-2:] if count > 1 else node.shape[-1:])
            return last if count == 1 else self.view(last, View("{0}.unsqueeze(1)"), lambda x: x.unsqueeze(1))
        flat = self._merged(node, -3) if math.prod(rows) == self.rows else None
        return flat and self.view(flat, View("{0}.movedim(-2, 0)"), lambda x: x.movedim(-2, 0))

    def _split(self, node: Node) -> Node | None:
        """The same of what there is for each row and column of the projection, or for one of them."""
        *rows, columns = node.shape
        if math.prod(rows) == 1:
            flat: Node | None = self.build.reshape(node, (1, columns))
        else:
            flat = self._merged(node, -2) if math.prod(rows) == self.rows else None
        return flat if flat is None or columns == 1 else self.apart(flat)

    def apart(self, matrix: Node) -> Node | None:
        """The columns of each head as a matrix."""
        if self.count == 1:
            return self.view(matrix, View("{0}.unsqueeze(0)"), lambda x: x.unsqueeze(0))
        code, own = "{0}.unflatten(-1, ({1}, {2})).movedim(-2, 0)", (self.count, self.columns)
        return self.view(matrix, View(code, self.sizes[-2:]), lambda x: torch.unflatten(x, -1, own).movedim(-2, 0))

    def _merged(self, node: Node, last: int) -> Node | None:
        """With all dimensions up to `last` as one; None where they do not follow each other in memory."""
        if len(node.shape) == -last:
            return node
        shape = self.rows, *node.shape[last + 1 :]
        return self.view(node, View(f"{{0}}.flatten(0, {last})"), lambda x: x.view(shape))

    def view(self, node: Node, code: View, view: Callable[[torch.Tensor], torch.Tensor]) -> Node | None:
        """What is in memory, seen otherwise; None where that takes a copy."""
        return self.build.view_in_memory(node, code, view)

    def stretched(self, value: Node, columns: int) -> Node:
        """In the full shape."""
        return self.build.materialise(self.build.expand(value, (self.count, self.rows, columns)))

    def placed(self, value: Node) -> Node:
        """The values of heads where the function has them: rows before heads, which takes no launch."""
        if self.count == 1:
            view = self._with_laws(reshape_view(value.shape, self.seen))
            return self.build.node("reshape", (value,), self.seen, value.dtype, Reshaping(view))
        seen = self.view(self.build.stored(value), View("{0}.transpose(0, 1)"), lambda x: x.transpose(0, 1))
        if seen and seen.shape != self.seen:
            seen = self.view(seen, self._with_laws(reshape_view(seen.shape, self.seen)), lambda x: x.view(self.seen))
        assert seen is not None
        return self.build.node("cast", (seen,), self.seen, value.dtype)

    def _with_laws(self, view: View) -> View:
        """A view that splits the rows, of the sizes that the function gives them."""
        return View(view.source, self.sizes[: len(view.sizes)])


def read_of(graph: Graph, made: Mapping[int, Node], users: Users) -> list[Node]:
    """The values that the function returns, or that something else reads."""
    results = set(map(id, graph.outputs))
    return [n for key, n in made.items() if key in results or any(id(user) not in made for user in users[key])]

"""Few long rows as many parts: a dimension that is reduced is viewed as two, and the outer one gives blocks their work.

A block has a row to itself. Few rows keep few multiprocessors busy, and where their columns are one dimension there is
no outer one to split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import torch

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input, Iota, Reduction, Reshaping, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.size_laws import Place

FEW_ROWS = 32
"""A quarter of the SMs of an H200."""

FEWEST_PARTS, TIMES_MORE = 128, 8
"""Of the dimension of a single row: about one block for each of 132 multiprocessors of an H200, or eight."""


def parts_of(size: int, fewest: int = FEWEST_PARTS) -> int:
    """In how many parts of equal length a dimension comes, whole vectors where it can; 1 where there are too few."""
    counts = [count for count in range(TIMES_MORE * fewest, fewest - 1, -1) if size % count == 0]
    return next((count for count in counts if size // count % 8 == 0), counts[0] if counts else 1)


def with_parts(graph: Graph, dim: int, fewest: int = FEWEST_PARTS) -> Graph:
    """The graph with a dimension, counted from the end, in parts; other sizes must come in as many parts, too.

    Raises UnmatchedError where the dimension does not come in parts, or an operation needs it as it is.
    """
    read = [node for node in graph.nodes() if node.op == "input" and len(node.shape) >= -dim]
    count = parts_of(max((node.shape[dim] for node in read), default=1), fewest)
    if count == 1 or graph.free_sizes:
        raise UnmatchedError(f"dimension {dim} does not come in parts of equal length", operation="")
    parted = _Parted(GraphBuilder(), dim, count)
    whole = [node for node in read if node.shape[dim] > 1 and not Input.of(node).views]
    steps = tuple(((Input.of(node).index, len(node.shape) + dim), count) for node in whole)
    return replace(graph, outputs=tuple(map(parted.output, graph.outputs)), steps=(*graph.steps, *steps))


def _in_parts(at: int, count: int) -> View:
    return View(f"{{0}}.unflatten({at}, ({count}, -1))")


def sizes_of(argument: Node, dims: Sequence[int]) -> tuple[Fraction, tuple[Place, ...]] | None:
    """The product of these sizes of an argument, whole or in parts: a factor and its own sizes; None of a view."""
    seen, shape = Input.of(argument), argument.shape
    cuts = [at for at in range(len(shape) - 1) if seen.views == (_in_parts(at, shape[at]),)]
    if seen.views and not cuts:
        return None
    cut = cuts[0] if cuts else len(shape)
    factor = Fraction(shape[cut] if cut in dims else 1, shape[cut] if cut + 1 in dims else 1) if cuts else Fraction(1)
    return factor, tuple((seen.index, dim - (dim > cut)) for dim in dims if dim != cut)


class _Parted:
    """What becomes of each node where a dimension, counted from the end, is `count` parts."""

    def __init__(self, build: GraphBuilder, dim: int, count: int) -> None:
        self.build, self.dim, self.count = build, dim, count
        self.found: dict[int, Node] = {}

    def output(self, node: Node) -> Node:
        """An output, in the shape that it had."""
        value, code = (node.inputs[0], Reshaping.of(node).view) if node.op == "reshape" else (node, View("{0}"))
        new = self.of(value)
        if new is value:
            return node
        at = len(value.shape) + self.dim
        whole = View(code.source.replace("{0}", f"{{0}}.flatten({at}, {at + 1})"), code.sizes)
        return self.build.node("reshape", (new,), node.shape, node.dtype, Reshaping(whole))

    def of(self, node: Node) -> Node:
        """The value with two dimensions for one, where it has that."""
        if id(node) not in self.found:
            self.found[id(node)] = node if len(node.shape) < -self.dim else self._of(node)
        return self.found[id(node)]

    def _of(self, node: Node) -> Node:
        build, at, shape = self.build, len(node.shape) + self.dim, self._shape(node.shape)
        build.origin = node.origin
        if node.op == "input":
            code = View(f"{{0}}.unsqueeze({at})") if node.shape[at] == 1 else _in_parts(at, self.count)
            parts = shape[at : at + 2]
            viewed = build.view_in_memory(node, code, lambda base: torch.unflatten(base, at, parts))
            assert viewed is not None, "one dimension can always be two"
            return viewed
        if node.op == "iota" and Iota.of(node).dim != at:
            return build.iota(shape, Iota.of(node).dim + (Iota.of(node).dim > at))
        if node.is_pointwise:
            return build.with_inputs(node, [self.of(each) for each in node.inputs], shape)
        if node.is_reduction:
            dims = [each + (each > at) for each in Reduction.of(node).dims]
            both = sorted({*dims, at + 1} if at in dims else dims)
            attrs = replace(Reduction.of(node), dims=tuple(both))
            return build.node(node.op, (self.of(node.inputs[0]),), shape, node.dtype, attrs)
        raise UnmatchedError(f"{node.where} is not split into parts", operation=node.op)

    def _shape(self, shape: Shape) -> Shape:
        at = len(shape) + self.dim
        parts = (1, 1) if shape[at] == 1 else (self.count, shape[at] // self.count)
        return (*shape[:at], *parts, *shape[at + 1 :])

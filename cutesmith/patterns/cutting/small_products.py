"""Products with a short sum as pointwise work: a tile of a product would be nearly empty along k.

Transforms of points, frames and states are such: a few fused multiply-adds for each element of the result, at the rate
of memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import torch

from cutesmith.patterns.graph.attributes import Contraction, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, in_memory, place_along, with_nodes
from cutesmith.patterns.graph.size_laws import Place

LONGEST = 8
"""Of a sum: its factors are read as so many tensors side by side."""

FEWEST = 1 << 16
"""Elements of a result: a launch for fewer takes about as long either way."""


def with_small_products(graph: Graph) -> Graph:
    """The graph with each product that has a short sum as a sum of products of slices; its length is held."""
    small = [node for node in graph.nodes() if _is_small(node)]
    if not small:
        return graph
    build, held = GraphBuilder(), [_place(node) for node in small]
    changed = with_nodes(graph, lambda node: _sum_of_slices(build, node) if _is_small(node) else node)
    places = frozenset(place for place in held if place)
    return replace(changed, held=graph.held | places, fixed_shapes=graph.fixed_shapes or None in held)


def _is_small(node: Node) -> bool:
    if node.op != "contract" or math.prod(node.shape) < FEWEST:
        return False
    plain = all(in_memory(side) == (side,) for side in node.inputs)
    return plain and 0 < node.inputs[0].shape[-1] <= LONGEST


def _place(product: Node) -> Place | None:
    """The dimension of an argument that is as long as the sum; None where it is not known."""
    places = (place_along(factor, dim) for factor, dim in zip(product.inputs, (-1, -2), strict=True))
    return next((place for place in places if place), None)


def _sum_of_slices(build: GraphBuilder, node: Node) -> Node:
    build.origin = node.origin
    a, b = (side if side.op in IN_MEMORY else build.stored(side) for side in node.inputs)
    kind = Contraction.of(node).accumulate
    terms = [
        build.node("mul", (_column(build, a, at, kind), _row(build, b, at, kind)), node.shape, kind)
        for at in range(a.shape[-1])
    ]
    total = functools.reduce(lambda x, y: build.node("add", (x, y), node.shape, kind), terms)
    return build.retype(total, node.dtype)


def _column(build: GraphBuilder, factor: Node, at: int, kind: str) -> Node:
    view = View(f"{{0}}[..., {at}:{at + 1}]")
    return build.cast(_seen(build, factor, view, lambda base: base[..., at : at + 1]), kind)


def _row(build: GraphBuilder, factor: Node, at: int, kind: str) -> Node:
    view = View(f"{{0}}[..., {at}:{at + 1}, :]")
    return build.cast(_seen(build, factor, view, lambda base: base[..., at : at + 1, :]), kind)


def _seen(build: GraphBuilder, factor: Node, code: View, view: Callable[[torch.Tensor], torch.Tensor]) -> Node:
    seen = build.view_in_memory(factor, code, view)
    assert seen is not None
    return seen

"""Short reductions of pairs as pointwise work: the coordinates of a distance, or the corners of boxes, are summed up.

Each number is part of many pairs. So the pairs need not go to memory: what reads the result computes it again, from
slices of the numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Set
from dataclasses import replace

from cutesmith.patterns.cutting.small_products import LONGEST
from cutesmith.patterns.graph.attributes import Reduction, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of, place_along, with_nodes
from cutesmith.patterns.graph.size_laws import Place, SizeLaw
from cutesmith.patterns.graph.views import push_slice

STEPS = {"sum": "add", "mean": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
"""What puts two slices of a reduction together."""

MORE = 4
"""Times as many elements that are reduced as numbers that they are made of."""


def with_short_reductions(graph: Graph) -> Graph:
    """The graph with each short reduction of pairs as pointwise work on slices; the length is held."""
    short = [node for node in graph.nodes() if _is_short(node)]
    if not short:
        return graph
    build = GraphBuilder()
    held = {place for node in short for place in places_along(node, _dim(node))}
    changed = with_nodes(graph, lambda node: _of_slices(build, node) if _is_short(node) else node)
    return with_known_slices(graph, changed, held)


def with_known_slices(graph: Graph, changed: Graph, held: Set[Place | None]) -> Graph:
    """The graph with slices along dimensions that are held; None among them stands for one that is not known."""
    build = GraphBuilder()  # slices that were made at different times are one
    if graph.holds_for_other_sizes:
        changed = with_nodes(changed, lambda node: build.interned(_of_known_slices(node)))
    places = frozenset(place for place in held if place)
    return replace(changed, held=graph.held | places, fixed_shapes=graph.fixed_shapes or None in held)


def places_along(node: Node, dim: int) -> set[Place | None]:
    """The dimensions of arguments that one of what a reduction reads is made of; None where one is not known."""
    dim -= len(node.shape)
    long = [leaf for leaf in read_of(node) if len(leaf.shape) >= -dim and leaf.shape[dim] != 1]
    return {place_along(leaf, dim) for leaf in long} or {None}


def _is_short(node: Node) -> bool:
    """Whether a reduction of few elements each reads far more of them than there are numbers."""
    if node.op not in STEPS or sorted(_reduced(node))[:-1] != [1] * (len(_reduced(node)) - 1):
        return False
    if not 1 < max(_reduced(node)) <= LONGEST:
        return False
    inner = list(nodes_of(node.inputs, [id(leaf) for leaf in read_of(node)]))
    plain = all(each.is_pointwise or each.op in LEAVES for each in inner)
    return plain and math.prod(node.inputs[0].shape) >= MORE * sum(math.prod(leaf.shape) for leaf in read_of(node))


def _reduced(node: Node) -> list[int]:
    return [node.inputs[0].shape[dim] for dim in Reduction.of(node).dims]


def _dim(node: Node) -> int:
    """The dimension along which there is something to reduce."""
    return next(dim for dim in Reduction.of(node).dims if node.inputs[0].shape[dim] > 1)


def read_of(node: Node) -> list[Node]:
    """What a reduction reads from memory."""
    return [each for each in nodes_of(node.inputs) if each.op in IN_MEMORY]


def _of_slices(build: GraphBuilder, node: Node) -> Node:
    build.origin = node.origin
    (x,), dim, kind = node.inputs, _dim(node), compute_dtype(node.dtype)
    count = x.shape[dim]
    slices = [build.materialise(build.cast(push_slice(build, x, dim, at, 1), kind)) for at in range(count)]
    total = functools.reduce(lambda a, b: build.node(STEPS[node.op], (a, b), node.shape, kind), slices)
    return build.retype(build("div", total, count) if node.op == "mean" else total, node.dtype)


def _of_known_slices(node: Node) -> Node:
    """What lies in memory, of which the slices just made are the same for all sizes; other views had laws before."""
    if not isinstance(node.attrs, Viewed):
        return node
    views = (
        view.with_sizes(lambda at: SizeLaw.constant(at) if isinstance(at, int) else at) for view in node.attrs.views
    )
    return replace(node, attrs=replace(node.attrs, views=tuple(views)))

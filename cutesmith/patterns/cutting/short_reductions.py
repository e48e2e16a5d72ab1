"""Short reductions of pairs as pointwise work: the coordinates of a distance, or the corners of boxes, are summed up.

Each number is part of many pairs. So the pairs need not go to memory: what reads the result computes it again, from
slices of the numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence, Set
from dataclasses import replace

from cutesmith.patterns.cutting.small_products import LONGEST
from cutesmith.patterns.graph.attributes import Reduction, Stored, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of, place_along, with_nodes
from cutesmith.patterns.graph.size_laws import Place, SizeLaw
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_slice

STEPS = {"sum": "add", "mean": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
"""What puts two slices of a reduction together."""

MORE = 4
"""Times as many elements that are reduced as numbers that they are made of."""


def with_short_reductions(graph: Graph) -> Graph:
    """The graph with each short reduction of pairs as pointwise work on slices; the length is held."""
    return _with_slices(graph, [node for node in graph.nodes() if _is_short(node) and _is_of_pairs(node)])


def with_taken_reductions(graph: Graph) -> Graph:
    """The graph with each short reduction that joined results read, as one of channels, as pointwise work on slices."""
    taken = {id(node.inputs[0].inputs[0]) for node in graph.nodes() if _takes_whole(node)}
    return _with_slices(graph, [node for node in graph.nodes() if id(node) in taken and _is_short(node)])


def _takes_whole(node: Node) -> bool:
    """Whether a take reads all of what another launch stores."""
    if node.op != "take" or node.inputs[0].op != "stored":
        return False
    return Stored.of(node.inputs[0]) == Stored.whole(node.inputs[0].inputs[0].shape)


def _with_slices(graph: Graph, short: Sequence[Node]) -> Graph:
    """The graph with these reductions as pointwise work, also where a take reads their elements."""
    if not short:
        return graph
    build, values = GraphBuilder(), {id(node) for node in short}
    held = {place for node in short for place in places_along(node, _dim(node))}

    def change(node: Node) -> Node:
        if id(node) in values:
            made = _of_slices(build, node)
            values.add(id(made))
            return made
        if _takes_whole(node) and id(node.inputs[0].inputs[0]) in values:
            return build.materialise(take(build, node.inputs[0].inputs[0], node.inputs[1:], node.shape))
        return node

    return with_known_slices(graph, with_nodes(graph, change), held)


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
    """Whether a reduction is one of few elements each, of pointwise work."""
    if node.op not in STEPS or sorted(_reduced(node))[:-1] != [1] * (len(_reduced(node)) - 1):
        return False
    if not 1 < max(_reduced(node)) <= LONGEST:
        return False
    inner = list(nodes_of(node.inputs, [id(leaf) for leaf in read_of(node)]))
    return all(each.is_pointwise or each.op in LEAVES for each in inner)


def _is_of_pairs(node: Node) -> bool:
    """Whether far more elements are reduced than there are numbers."""
    return math.prod(node.inputs[0].shape) >= MORE * sum(math.prod(leaf.shape) for leaf in read_of(node))


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

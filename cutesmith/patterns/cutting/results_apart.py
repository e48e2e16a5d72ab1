"""Reductions that keep a short dimension as one reduction for each place along it, made by one launch.

The forces between bodies have three coordinates, and a distance that all of them share. A kernel of one reduction
computes the distance for each coordinate; one of three has it in a register.
"""

from __future__ import annotations

from cutesmith.patterns.cutting.short_reductions import places_along, read_of, with_known_slices
from cutesmith.patterns.cutting.small_products import LONGEST
from cutesmith.patterns.graph.attributes import Reduction
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.instructions import usual_instructions
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of, with_nodes
from cutesmith.patterns.graph.views import push_slice


def with_results_apart(graph: Graph) -> Graph:
    """The graph with reductions apart whose places share most work; their number is held. Itself without such."""
    found = [(node, dim) for node in graph.nodes() if (dim := _shared_dim(node)) is not None]
    if not found:
        return graph
    build, held = GraphBuilder(), {place for node, dim in found for place in places_along(node, dim)}
    return with_known_slices(graph, with_nodes(graph, lambda node: _apart(build, node)), held)


def _shared_dim(node: Node) -> int | None:
    """The kept dimension along which most of what is reduced is the same; None where there is none."""
    if not node.is_reduction:
        return None
    (x,) = node.inputs
    work = [each for each in nodes_of((x,), [id(leaf) for leaf in read_of(node)]) if each.op not in LEAVES]
    if not all(each.is_pointwise for each in work):
        return None
    for dim in range(len(x.shape)):
        if dim not in Reduction.of(node).dims and 1 < x.shape[dim] <= LONGEST:
            same = [each for each in work if _is_same_along(each, x, dim)]
            if 2 * usual_instructions(same, fast=False) > usual_instructions(work, fast=False):
                return dim
    return None


def _is_same_along(node: Node, x: Node, dim: int) -> bool:
    """Whether a value has all elements of what is reduced, once for all places along a dimension."""
    aligned = (1,) * (len(x.shape) - len(node.shape)) + node.shape
    return aligned == (*x.shape[:dim], 1, *x.shape[dim + 1 :])


def _apart(build: GraphBuilder, node: Node) -> Node:
    """The reductions at each place, stored, and side by side; any other node as it is."""
    if (dim := _shared_dim(node)) is None:
        return node
    build.origin = node.origin
    (x,), size = node.inputs, node.shape[dim]
    shape = tuple(1 if at == dim else each for at, each in enumerate(node.shape))
    sliced = [build.materialise(push_slice(build, x, dim, at, 1)) for at in range(size)]
    parts = [build.stored(build.node(node.op, (each,), shape, node.dtype, node.attrs)) for each in sliced]
    place, joined = build.iota(node.shape, dim), parts[-1]
    for at in reversed(range(size - 1)):
        joined = build("where", build("lt", place, at + 1), parts[at], joined)
    return build.materialise(build.expand(joined, node.shape))

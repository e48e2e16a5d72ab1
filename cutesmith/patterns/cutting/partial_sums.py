"""Sums over rows beside reductions of each row, as the gradient of a norm's weight: one visit to memory makes both.

A block of the row kernel goes from row to row and sums up what it has of each column, in registers. The sums of all
blocks are few: a small launch adds them up, in the same order every time.
"""

from __future__ import annotations

import math

from cutesmith.devices import parse_arch
from cutesmith.patterns.graph.attributes import Groups, Reduction
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.rows.proposals import SUMMED_ELEMENTS, SUMMING_THREADS

MULTIPROCESSORS = parse_arch("sm_90a").sm.multiprocessors

THREADS = 128
"""Of a block at least."""


def with_partial_sums(graph: Graph) -> Graph:
    """The graph with each sum over rows as one of the partial sums of blocks that reduce these rows; else itself."""
    rows = {(node.inputs[0].shape, Reduction.of(node).dims) for node in graph.nodes() if node.is_reduction}
    if not any(_beside(node, rows) for node in graph.nodes()):
        return graph
    build = GraphBuilder()
    return with_nodes(graph, lambda node: _in_groups(build, node) if _beside(node, rows) else node)


def _beside(node: Node, reduced: set[tuple[Shape, tuple[int, ...]]]) -> bool:
    """Whether a sum goes over all dimensions but the last ones, which others of the same shape reduce."""
    if node.op != "sum" or compute_dtype(node.inputs[0].dtype) != "float32" or not math.prod(node.inputs[0].shape):
        return False
    shape, dims = node.inputs[0].shape, Reduction.of(node).dims
    leading = dims == tuple(range(len(dims)))
    return leading and (shape, tuple(range(len(dims), len(shape)))) in reduced


def _in_groups(build: GraphBuilder, node: Node) -> Node:
    (x,), rank = node.inputs, len(Reduction.of(node).dims)
    columns = x.shape[rank:]
    at_once = MULTIPROCESSORS * max(1, SUMMING_THREADS // max(THREADS, math.prod(columns) // SUMMED_ELEMENTS))
    count = min(at_once, math.prod(x.shape[:rank]))
    build.origin = node.origin
    partial = build.node("partial_sums", (x,), (count, *columns), "float32", Groups(count))
    stored = build.reshape(build.stored(partial), (count, *[1] * (rank - 1), *columns))
    return build.node("sum", (stored,), node.shape, node.dtype, node.attrs)

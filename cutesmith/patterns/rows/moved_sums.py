"""Sums of what a value of the row is taken from, as the sum of logarithms of a softmax, without a visit of their own.

The mean of x - r is that of x and r from one pivot: mean(x - p) + (p - r). The pivot is an element of the row, so that
rows with a large common offset lose no digit. It needs no r, so it is summed in the visit that finds r.
"""

from __future__ import annotations

import math

from cutesmith.patterns.graph.attributes import Gather, Reduction
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import REDUCTIONS, Graph, Node, nodes_of, with_values

TIMES_COLUMNS = "times_columns"
"""A value of a row as many times as the row has columns."""


def with_moved_sums(graph: Graph) -> Graph:
    """The graph with each sum or mean of x - r by a pivot, where r is made of the row's extreme; else itself."""
    build = GraphBuilder()
    moved = {id(node): other for node in graph.nodes() if (other := _moved(build, node))}
    return with_values(graph, moved) if moved else graph


def _moved(build: GraphBuilder, node: Node) -> Node | None:
    if node.op not in ("sum", "mean") or len(dims := Reduction.of(node).dims) != 1:
        return None
    (x,), taken = node.inputs, list[Node]()
    while x.op == "sub" and x.inputs[1].shape == node.shape and x.inputs[0].shape == x.shape:
        x, value = x.inputs
        taken.insert(0, value)
    of_row = {each.op for each in nodes_of(tuple(taken))}
    reduced = any(each.op in REDUCTIONS for each in nodes_of((x,)))
    if reduced or not of_row & {"max", "min"} or compute_dtype(x.dtype) != "float32":
        return None
    build.origin = node.origin
    pivot = _pivot(build, x, node, dims[0])
    moved, left = build.node("sub", (x, pivot), x.shape, "float32"), pivot
    for value in taken:
        left = build.node("sub", (left, value), node.shape, "float32")
    mean = build.node("mean", (moved,), node.shape, "float32", node.attrs)
    total = build.node("add", (mean, left), node.shape, node.dtype)
    return total if node.op == "mean" else build.node(TIMES_COLUMNS, (total,), node.shape, node.dtype)


def _pivot(build: GraphBuilder, x: Node, node: Node, dim: int) -> Node:
    """The first element of the row; 0 where that is not finite."""
    first = build.node("gather", (x, build.constant(0, "int64")), node.shape, x.dtype, Gather(dim))
    size = build.node("abs", (first,), node.shape, "float32")
    is_finite = build.node("lt", (size, build.constant(math.inf, "float32")), node.shape, "bool")
    return build.node("where", (is_finite, first, build.constant(0.0, "float32")), node.shape, "float32")

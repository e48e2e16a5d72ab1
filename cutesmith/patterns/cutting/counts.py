"""Sums of one-hot rows, said as counts: how many elements are equal to each coordinate, of which none is stored."""

from __future__ import annotations

import math
from dataclasses import replace

from cutesmith.patterns.graph.attributes import Iota, Reduction, Scatter
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import INTEGERS
from cutesmith.patterns.graph.nodes import Graph, Node, with_values


def with_counts(graph: Graph) -> Graph:
    """The graph with a scatter for each sum over comparisons of integers with a coordinate; itself without such."""
    build, values = GraphBuilder(), dict[int, Node]()
    for node in graph.nodes():
        if node.op == "sum" and (counted := _counted(build, node)) is not None:
            values[id(node)] = counted
    return with_values(graph, values) if values else graph


def _counted(build: GraphBuilder, node: Node) -> Node | None:
    """The count that a sum is, or None."""
    compared = node.inputs[0]
    while compared.op == "cast":
        compared = compared.inputs[0]
    if compared.op != "eq" or not any(each.op == "iota" for each in compared.inputs):
        return None
    value, along = sorted(compared.inputs, key=lambda each: each.op == "iota")
    rank, reduced = len(compared.shape), Reduction.of(node).dims
    dim = rank - len(along.shape) + Iota.of(along).dim
    own = (1,) * (rank - len(value.shape)) + value.shape
    kept = [at for at in range(rank) if at not in (dim, *reduced) and own[at] > 1]
    full = all(own[at] == compared.shape[at] for at in range(rank) if at != dim)
    if (
        value.dtype not in INTEGERS
        or dim in reduced
        or own[dim] != 1
        or not full
        or max(kept, default=-1) > min(reduced)
    ):
        return None
    frame = [size if at in kept else 1 for at, size in enumerate(own)]
    frame[dim] = math.prod(own[at] for at in reduced)
    index = build.operand(build.reshape(value, tuple(frame)), "int64")
    count = build.node("scatter", (index, build.constant(1, "int32")), node.shape, "int32", Scatter(dim, "sum"))
    sizes = tuple(1 if at in reduced else size for at, size in enumerate(compared.sizes))
    return build.cast(replace(count, sizes=sizes), node.dtype)

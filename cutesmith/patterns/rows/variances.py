"""Variances of rows as sum((x - mean)^2) / (N - correction)."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.graph.attributes import Attributes, Reduction
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes


@dataclass(frozen=True)
class Degrees(Attributes):
    """What a sum of squared deviations is divided by: the row's length less the correction, at least 0."""

    correction: float


def with_lowered_variances(graph: Graph) -> Graph:
    """The graph with two rounds for each variance, exact for rows with a large common offset."""
    means: dict[tuple[int, tuple[int, ...]], Node] = {}
    totals: dict[tuple[int, tuple[int, ...]], Node] = {}

    def lowered(node: Node) -> Node:
        if node.op == "mean":
            mean = means.setdefault((id(node.inputs[0]), Reduction.of(node).dims), node)
            return (
                mean if mean.dtype == node.dtype else Node("cast", (mean,), node.shape, node.dtype, origin=node.origin)
            )
        return _variance(node, means, totals) if node.op == "var" else node

    return with_nodes(graph, lowered)


def _variance(
    node: Node, means: dict[tuple[int, tuple[int, ...]], Node], totals: dict[tuple[int, tuple[int, ...]], Node]
) -> Node:
    (x,) = node.inputs
    dims, dtype, correction = Reduction.of(node).dims, node.dtype, Reduction.of(node).correction
    over = Reduction(dims)
    mean = means.setdefault((id(x), dims), Node("mean", (x,), node.shape, dtype, over, node.origin))
    centred = Node("sub", (x, mean), x.shape, dtype, origin=node.origin)
    square = Node("mul", (centred, centred), x.shape, dtype, origin=node.origin)
    total = totals.setdefault((id(x), dims), Node("sum", (square,), node.shape, dtype, over, node.origin))
    return Node("degrees", (total,), node.shape, dtype, Degrees(correction), node.origin)

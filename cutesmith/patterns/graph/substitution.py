"""A graph rebuilt with numbers in the place of its run-time scalars, so that it can be compared with a plain trace."""

from __future__ import annotations

from collections.abc import Mapping

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Gather, Graph, Node, Number, Reduction, Scalar


def with_numbers(graph: Graph, numbers: Mapping[int, Number]) -> Graph:
    """The graph whose `scalar` nodes became constants (argument index → number), folded as a trace folds them."""
    build = GraphBuilder()
    rebuilt: dict[int, Node] = {}
    for node in graph.nodes():
        inputs = [rebuilt[id(child)] for child in node.inputs]
        rebuilt[id(node)] = _rebuilt(build, node, inputs, numbers)
    outputs = tuple(build.materialise(build.expand(rebuilt[id(node)], node.shape)) for node in graph.outputs)
    return Graph(graph.arguments, outputs, graph.output_strides, graph.returns_tuple)


def _rebuilt(build: GraphBuilder, node: Node, inputs: list[Node], numbers: Mapping[int, Number]) -> Node:
    build.origin = node.origin
    if node.op == "scalar" and Scalar.of(node).index in numbers:
        return build.constant(numbers[Scalar.of(node).index], node.dtype)
    if node.is_pointwise:
        return build.expand(build(node.op, *inputs, dtype=node.dtype), node.shape)
    if node.is_reduction:
        reduction = Reduction.of(node)
        return build.reduce(node.op, inputs[0], reduction.dims, node.dtype, reduction.correction)
    if node.op == "reshape":
        return build.reshape(inputs[0], node.shape)
    if node.op == "gather":
        return build.gather(inputs[0], inputs[1], Gather.of(node).dim)
    return build.node(node.op, inputs, node.shape, node.dtype, node.attrs)

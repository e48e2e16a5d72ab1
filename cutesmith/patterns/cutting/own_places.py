"""Reductions that are read at their own places alone, as a mean of the row by the halves of a rotary embedding.

A take reads what lies in memory. At the places of the result itself it is the value, and one launch may compute both.
"""

from __future__ import annotations

from cutesmith.patterns.graph.attributes import Stored
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.takes import is_own_place


def with_reductions_in_place(graph: Graph) -> Graph:
    """The graph with each stored reduction in place of what takes it so; itself without such."""
    if not any(map(_is_reduction_in_place, graph.nodes())):
        return graph
    build = GraphBuilder()
    return with_nodes(graph, lambda node: _in_place(build, node) if _is_reduction_in_place(node) else node)


def is_in_place(node: Node) -> bool:
    """Whether a take reads what is stored at the places of its result."""
    if node.op != "take" or node.inputs[0].op != "stored":
        return False
    source, *places = node.inputs
    if len(source.shape) > len(node.shape):
        return False
    return all(map(is_own_place, places, source.shape, range(-len(source.shape), 0)))


def _is_reduction_in_place(node: Node) -> bool:
    if not is_in_place(node):
        return False
    (value,) = node.inputs[0].inputs
    return value.is_reduction and Stored.of(node.inputs[0]) == Stored.whole(value.shape)


def _in_place(build: GraphBuilder, node: Node) -> Node:
    return build.materialise(build.expand(node.inputs[0].inputs[0], node.shape))

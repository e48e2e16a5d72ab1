"""Complex results of a transform, whose parts lie side by side in memory, as results of its own launch."""

from __future__ import annotations

from dataclasses import replace

from cutesmith.patterns.elementwise.lanes import laned
from cutesmith.patterns.graph.attributes import Stored
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_nodes, with_values


def with_transformed_pairs(graph: Graph) -> Graph:
    """The graph with `pairs` in place of results that a `stack` of both parts of a transform gives."""
    nodes = list(graph.nodes())
    are_whole = all(Stored.of(node).views == () for node in nodes if node.op == "stored")
    if not are_whole or not any(node.op == "transform" for node in nodes):
        return graph
    build, found = GraphBuilder(), dict[int, Node]()
    for node in graph.outputs:
        if parts := _parts(graph, node):
            build.origin = node.origin
            found[id(node)] = build.node("pairs", parts, node.shape, node.dtype)
    return with_values(graph, found) if found else graph


def _parts(graph: Graph, node: Node) -> tuple[Node, ...]:
    """The functions of transforms whose values lie side by side in a node; none for others."""
    if node.op != "where" or node.shape[-1:] != (2,) or node.dtype != "float32":
        return ()
    lanes = laned(replace(graph, outputs=(node,)))
    if lanes is None:
        return ()
    apart = with_nodes(lanes.apart, lambda each: each.inputs[0] if each.op == "stored" else each)
    are_made = all(any(each.op == "transform" for each in nodes_of((part,))) for part in apart.outputs)
    return apart.outputs if are_made else ()

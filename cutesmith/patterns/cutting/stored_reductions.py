"""Reductions of what lies in memory that several launches would compute again: a launch of their own stores them.

The backward pass of a group norm sums up channels, and groups of those sums, and reads the sums for each gradient. Each
of them is a visit to the images.
"""

from __future__ import annotations

import math
from collections import defaultdict

from cutesmith.patterns.graph.attributes import Reduction
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of, users_of, with_values

MORE = 16
"""Times as many elements that are reduced as there are results: storing and reading those takes little time."""


def with_stored_reductions(graph: Graph) -> Graph:
    """The graph with reductions stored of which the same rows are read more than once; itself where there are none."""
    build, users = GraphBuilder(), users_of(graph)
    visits = defaultdict[object, list[Node]](list)
    for node in filter(_is_visit, graph.nodes()):
        visits[node.inputs, Reduction.of(node).dims].append(node)
    repeated = [nodes for nodes in visits.values() if sum(len(users[id(node)]) for node in nodes) > 1]
    stored = {id(node): build.stored(node) for nodes in repeated for node in nodes}
    seen = {id(user): user for key in stored for user in users[key] if user.op == "stored"}  # which lie in memory so
    return with_values(graph, {**stored, **seen}) if stored else graph


def _is_visit(node: Node) -> bool:
    """Whether it is a reduction of far more elements of memory, with nothing but pointwise work before it."""
    if not node.is_reduction or math.prod(node.inputs[0].shape) < MORE * math.prod(node.shape):
        return False
    return all(each.is_pointwise or each.op in (*LEAVES, "stored") for each in nodes_of(node.inputs))

"""Pointwise work on both sides of a reshape, in the shape whose dimensions make up those of both.

Numbers of 4 bits that a stack puts side by side are scaled in groups of a row, say: (rows, places, 2) is seen as
(rows, groups, 128). In the shape (rows, groups, 64, 2) every argument is a view, and one launch computes all of it.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node, users_of, with_nodes
from cutesmith.patterns.graph.shapes import common_parts
from cutesmith.patterns.graph.takes import is_own_place


def with_finer_shapes(graph: Graph) -> Graph:
    """The graph without reshapes between pointwise work, for the traced sizes; itself where there are none."""
    users = users_of(graph)
    if graph.free_sizes or not any(_parts_work(node, users[id(node)]) for node in graph.nodes()):
        return graph
    build = GraphBuilder()
    return replace(with_nodes(graph, lambda node: _finer(build, node)), fixed_shapes=True)


def _parts_work(node: Node, users: list[Node]) -> bool:
    """Whether a node is a reshape between pointwise work and more of it."""
    return node.op == "reshape" and node.inputs[0].is_pointwise and any(user.is_pointwise for user in users)


def _finer(build: GraphBuilder, node: Node) -> Node:
    """A node whose inputs are such values already."""
    build.origin = node.origin
    if node.op == "take" and _is_in_place(node):
        return build.materialise(build.expand(node.inputs[0], node.shape))
    if node.op == "reshape" and node.inputs[0].is_pointwise:
        parts = common_parts(node.inputs[0].shape, node.shape)
        finer = tuple(itertools.chain.from_iterable(parts or ()))
        return build.reshape(build.reshape(node.inputs[0], finer), node.shape) if parts else node
    if node.op == "reshape" and node.inputs[0].op == "reshape":
        return build.reshape(node.inputs[0].inputs[0], node.shape)
    if node.is_pointwise and any(child.op == "reshape" for child in node.inputs):
        return build.materialise(build.expand(build(node.op, *node.inputs, dtype=node.dtype), node.shape))
    return node


def _is_in_place(node: Node) -> bool:
    """Whether a take reads its source at its own places: an element outside, along a dimension of 1, may be any."""
    source, *places = node.inputs
    dims = range(-len(source.shape), 0)
    own = (size == 1 or is_own_place(place, size, dim) for place, size, dim in zip(places, source.shape, dims))
    return len(source.shape) == len(node.shape) and all(own)

"""Rows that overwrite, said by a table of owners: the last element of each place, which then reads it.

A block that keeps the order of elements walks all indices. The largest number of an element that names a place needs no
order: atomics find it, of the index alone, and the result is the same in every run.
"""

from __future__ import annotations

from dataclasses import replace

from cutesmith.patterns.graph.attributes import Scatter
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node, with_values
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.simplification import constant_value
from cutesmith.patterns.graph.takes import take


def with_owners(graph: Graph) -> Graph:
    """The graph whose places read their last element; itself where none has a last one of several."""
    build, values, owners = GraphBuilder(), dict[int, Node](), dict[int, Node]()
    for node in graph.nodes():
        if node.op == "scatter" and Scatter.of(node).operation == "last" and not Scatter.of(node).alone:
            owner = _owner(build, node)
            values[id(node)] = _last(build, node, owner)
            owners[id(node.inputs[0])] = owner
    for node in graph.nodes():
        counted = node.inputs[0] if node.op == "gt" and constant_value(node.inputs[1]) == 0 else None
        if counted is not None and _counts(counted) and id(counted.inputs[0]) in owners:
            there = build("ge", owners[id(counted.inputs[0])], 0)
            values[id(node)] = replace(there, sizes=node.sizes)
    return with_values(graph, values) if values else graph


def _counts(node: Node) -> bool:
    return node.op == "scatter" and Scatter.of(node).operation == "sum" and constant_value(node.inputs[1]) == 1


def _owner(build: GraphBuilder, node: Node) -> Node:
    """For each place the number of its last element along the index's dimension, less than 0 where it has none."""
    index, dim = node.inputs[0], Scatter.of(node).dim
    index = build.reshape(index, (1,) * (len(node.shape) - len(index.shape)) + index.shape)
    shape = tuple(node.shape[dim] if at == dim else size for at, size in enumerate(index.shape))
    number = build.cast(build.iota(index.shape, dim), "int32")
    owner = build.node("scatter", (index, number), shape, "int32", Scatter(dim, "max"))
    return replace(owner, sizes=tuple(1 if one == 1 else size for one, size in zip(shape, node.sizes, strict=False)))


def _last(build: GraphBuilder, node: Node, owner: Node) -> Node:
    """The elements that own their places; 0 where there is none."""
    index, x = node.inputs
    dim, frame = Scatter.of(node).dim, broadcast([index.shape, x.shape])
    place = build.cast(build("maximum", owner, 0), "int64")
    places = [place if at == dim else build.iota(node.shape, at) for at in range(len(frame))]
    value = take(build, build.expand(x, frame), places, node.shape)
    return replace(build("where", build("ge", owner, 0), value, 0, dtype=node.dtype), sizes=node.sizes)

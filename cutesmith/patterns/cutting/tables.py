"""Costly functions that are computed for few numbers and read by many: cosines of angles, powers of a channel.

A kernel of the larger shape computes them for each of its elements, and once for each part of a `cat` or a `stack` that
reads them. Stored by a launch of their own, they are computed once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.instructions import OF_FLOAT32
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_values
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.takes import take

COSTLY = 20
"""Instructions for an element: less than storing and reading a number takes at the rate of memory."""

MORE = 2
"""Times as many elements that are computed as there are numbers."""


def with_tables(graph: Graph) -> Graph:
    """The graph with costly functions stored that more elements read than they have; itself where there are none."""
    build, read_by = GraphBuilder(), _most_read(graph)
    tables, values = dict[int, Node](), dict[int, Node]()
    readers = defaultdict[int, list[Node]](list)
    for node, table in _candidates(graph, build, read_by):
        tables[id(table)] = table
        readers[id(table)].append(node)
    for key, table in tables.items():
        if sum(read_by[id(node)] for node in readers[key]) >= MORE * math.prod(table.shape):
            values |= {id(node): _read(build, table, node) for node in readers[key]}
    stored = (node for node in graph.nodes() if node.op == "stored" and id(node.inputs[0]) in values)
    return with_values(graph, values | {id(node): node for node in stored}) if values else graph


def _candidates(graph: Graph, build: GraphBuilder, read_by: Mapping[int, int]) -> Iterator[tuple[Node, Node]]:
    """Costly functions that are not part of others, and the tables that they may read: themselves, or before takes."""
    inner: set[int] = set()
    for node in reversed(list(graph.nodes())):
        if not node.is_pointwise or id(node) in inner or 0 in node.shape:
            continue
        table = None
        if read_by[id(node)] >= MORE * math.prod(node.shape):
            table = node if _instructions(_work(node)) >= COSTLY else None
        elif _instructions([node]) >= COSTLY:
            table = _before_takes(build, node)
        if table is not None:
            inner |= {id(each) for each in _work(node)}
            yield node, table


def _instructions(nodes: Iterable[Node]) -> int:
    return sum(OF_FLOAT32.get(node.op, 1) for node in nodes)


def _work(node: Node) -> list[Node]:
    """The pointwise operations that a value is made of, down to what lies in memory."""
    found, stack = dict[int, Node](), [node]
    while stack:
        each = stack.pop()
        if each.is_pointwise and id(each) not in found:
            found[id(each)] = each
            stack.extend(each.inputs)
    return list(found.values())


def _most_read(graph: Graph) -> dict[int, int]:
    """For each node the elements of the largest value that pointwise work computes of it at once."""
    most: dict[int, int] = {}
    for node in reversed(list(graph.nodes())):
        most[id(node)] = max(most.get(id(node), 0), math.prod(node.shape))
        if node.is_pointwise or node.op in ("reshape", "expand"):
            for child in node.inputs:
                most[id(child)] = max(most.get(id(child), 0), most[id(node)])
    return most


def _before_takes(build: GraphBuilder, node: Node) -> Node | None:
    """A function of taken elements as one of all elements; None where they do not lie at the same places."""
    takes = _takes(node)
    if takes is None or _places(takes) is None:
        return None
    known: dict[int, Node] = {id(each): each.inputs[0] for each in takes}
    for each in nodes_of((node,), known):
        if each.is_pointwise:
            inputs = [known.get(id(child), child) for child in each.inputs]
            known[id(each)] = build.node(
                each.op, inputs, broadcast([child.shape for child in inputs]), each.dtype, each.attrs
            )
    return known[id(node)]


def _takes(node: Node) -> list[Node] | None:
    """The takes that a value is made of; None where it is made of anything but those and numbers."""
    leaves = {id(child): child for each in _work(node) for child in each.inputs if not child.is_pointwise}
    others = [leaf for leaf in leaves.values() if leaf.op not in ("constant", "scalar", "sized")]
    are_takes = all(leaf.op == "take" and leaf.inputs[0].op in IN_MEMORY for leaf in others)
    return others if others and are_takes else None


def _places(takes: Sequence[Node]) -> list[Node] | None:
    """The coordinates that all of them have; None where they differ along a dimension that is not 1."""
    try:
        shape = broadcast([each.inputs[0].shape for each in takes])
    except RuntimeError:
        return None
    found: list[Node] = []
    for dim in range(-len(shape), 0):
        have = [each for each in takes if len(each.inputs[0].shape) >= -dim]
        at = [each.inputs[1:][dim] for each in have if each.inputs[0].shape[dim] == shape[dim]]
        if any(each is not at[0] for each in at):
            return None
        found.append(at[0])
    return found


def _read(build: GraphBuilder, table: Node, node: Node) -> Node:
    """The value of a node that reads its table."""
    if node is table:
        return build.stored(table)
    places = _places(_takes(node) or ())
    assert places is not None
    return replace(take(build, build.stored(table), places, node.shape), sizes=node.sizes)

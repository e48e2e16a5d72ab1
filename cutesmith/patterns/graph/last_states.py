"""Loops of which a function keeps the last state alone: those before are found behind it and become a layer's."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.gate_sums import plain
from cutesmith.patterns.graph.nodes import Graph, Node, with_values
from cutesmith.patterns.graph.rerolling import FEWEST, remember_layer
from cutesmith.patterns.graph.views import once_scanned

ENDS_OF_STEPS = {
    "add": ({"mul", "tanh"}, {"mul"}),
    "mul": ({"sigmoid", "tanh"},),
    "maximum": ({"add", "constant"},),
    "tanh": ({"add"},),
}
"""The last operations of steps that `recurrent_cells` knows, and of what they are."""
MOST_TRIED = 2
"""Loops that end with the same value: the second one, where the first goes through another loop's states."""
MOST_IN_A_STEP = 100
"""Values of a step that are looked through for the state before: those of an LSTM are about 30."""


def with_states_of_layers(build: GraphBuilder, graph: Graph) -> Graph:
    """The graph in which states of loops are read from scans and layers, the last one of a loop, too."""
    tried = set[object]()
    graph = _with_states(build, graph)
    while (last := _untried(graph, tried)) is not None:
        if any(remember_layer(build, states) for states in itertools.islice(_loops(build, last), MOST_TRIED)):
            tried.clear()
            graph = _with_states(build, graph)
    return graph


def _with_states(build: GraphBuilder, graph: Graph) -> Graph:
    states = [node for node in graph.nodes() if id(node) in build.states] if build.states else []
    return with_values(graph, {id(node): once_scanned(build, node) for node in states}) if states else graph


def _untried(graph: Graph, tried: set[object]) -> Node | None:
    """The last of several values that are made in the same way, and may be the states of a layer; it is tried then."""
    found = defaultdict[object, list[Node]](list)
    for node in graph.nodes():
        if _ends_a_step(node):
            found[(_made_by(node), *map(_made_by, node.inputs))].append(node)
    for way, nodes in found.items():
        if way not in tried:
            tried.add(way)
            if len(nodes) >= FEWEST - 1:  # the first may have been simplified
                return nodes[-1]
    return None


def _ends_a_step(node: Node) -> bool:
    known = ENDS_OF_STEPS.get(node.op, ())
    return bool(known) and {plain(each, node.dtype).op for each in node.inputs} in known


def _made_by(node: Node) -> tuple[object, ...]:
    return (node.op, node.shape, node.dtype, *(each.op for each in node.inputs))


def _loops(build: GraphBuilder, last: Node) -> Iterator[list[Node]]:
    """The states that `last` may be the last one of: each is made of the one before in the same way."""
    for way in _ways_back(build, last):
        states = [last]
        while (before := _before(build, states[-1], way)) is not None:
            states.append(before)
        if len(states) >= FEWEST:
            yield states[::-1]


Way = tuple[tuple[str, int], ...]
"""Operations on the way from a state to the one before, and which part of each the way goes through."""


def _ways_back(build: GraphBuilder, last: Node) -> Iterator[Way]:
    """The shortest ways to values that are made by the same operations."""
    seen, left = {id(last)}, deque[tuple[Node, Way]]([(last, ())])
    while left and len(seen) < MOST_IN_A_STEP:
        node, way = left.popleft()
        for at, each in enumerate(build.parts_of(node)):
            if id(each) in seen:
                continue
            seen.add(id(each))
            further = (*way, (node.op, at))
            if _made_by(each) == _made_by(last):
                yield further
            else:
                left.append((each, further))


def _before(build: GraphBuilder, state: Node, way: Way) -> Node | None:
    node = state
    for op, at in way:
        parts = build.parts_of(node)
        if node.op != op or at >= len(parts):
            return None
        node = parts[at]
    return node if _made_by(node) == _made_by(state) else None

"""Transforms that others are made of: stored between two launches, or computed by the launch of the other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutesmith.patterns.graph.attributes import Transform
from cutesmith.patterns.graph.nodes import Node


def whole_transform(node: Node) -> tuple[object, ...]:
    """What both parts of a transform have in common."""
    return (*map(id, node.inputs), replace(Transform.of(node), imag=False))


def transformed_again(order: Sequence[Node]) -> list[Node]:
    """The transforms that others are made of."""
    return list({id(node): node for inner in _made_of(order).values() for node in inner}.values())


def transforms_inside(order: Sequence[Node]) -> list[frozenset[int]]:
    """The ids of transforms that launches of others may make: all, one for each of the others, or none."""
    made_of = [_wholes(inner) for inner in _made_of(order).values()]
    most = max(map(len, made_of), default=0)
    ones = [[part for wholes in made_of for parts in wholes[at : at + 1] for part in parts] for at in range(most)]
    chosen = (transformed_again(order), *ones, [])
    return list(dict.fromkeys(frozenset(map(id, nodes)) for nodes in chosen))


def _made_of(order: Sequence[Node]) -> dict[int, list[Node]]:
    """By the id of each transform those that it is made of, without those that these are made of."""
    found, behind = dict[int, list[Node]](), dict[int, dict[int, Node]]()
    for node in order:
        of_inputs = {key: each for child in node.inputs for key, each in behind[id(child)].items()}
        if node.op == "transform":
            found[id(node)] = list(of_inputs.values())
        behind[id(node)] = {id(node): node} if node.op == "transform" else of_inputs
    return found


def _wholes(nodes: Sequence[Node]) -> list[list[Node]]:
    """The parts of each transform together."""
    found = dict[tuple[object, ...], list[Node]]()
    for node in nodes:
        found.setdefault(whole_transform(node), []).append(node)
    return list(found.values())

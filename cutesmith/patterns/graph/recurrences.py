"""States of which each is made of the one before, as a scan: where a step is a sum, product or extreme, or linear."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutesmith.patterns.graph.affine import NotAffineError, affine_in
from cutesmith.patterns.graph.attributes import Scan
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import is_float, same_class
from cutesmith.patterns.graph.nodes import Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape

SCANNED = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min"}
"""The operation of a scan whose step is an operation of the state before and of something else."""

Steps = tuple[Node | None, ...]
"""What each step has in one place, in the order of the pieces; None where any value will do."""


def any_of(steps: Steps) -> Node:
    """The first of them that is known."""
    return next(step for step in steps if step is not None)


def same_place(shape: Shape, at: int, other: Shape) -> int | None:
    """The dimension of another shape of the same elements that has as many elements before it; None where none has."""
    before = math.prod(shape[:at])
    return next((to for to in range(len(other) + 1) if math.prod(other[:to]) == before), None)


def along(shape: Shape, at: int, length: int) -> Shape:
    """The shape with one more dimension."""
    return (*shape[:at], length, *shape[at:])


class Unlike(Exception):
    """Steps are not the same operations on neighbouring slices."""


@dataclass
class Recurrence:
    """States of which each is made of the one before: of the one after where `is_reverse`; `carried` is that state.

    `used` are what stands before the first state, where that is made of it as the others are, else that state, or
    neither, where the first step does not use it; None as long as no step uses what is carried.
    """

    states: Steps
    is_reverse: bool
    at: int
    carried: Node
    used: tuple[Node | None, Node | None] | None = None

    def carries(self, steps: Steps, at: int) -> bool:
        """Whether these are the states before, in the order of time."""
        steps, states = (steps[::-1], self.states[::-1]) if self.is_reverse else (steps, self.states)
        pairs = zip(steps[1:], states[:-1], strict=True)
        if at != self.at or any(step is not state for step, state in pairs if step and state):
            return False
        first = steps[0].inputs[0] if steps[0] and steps[0].op == "expand" else steps[0]
        used = first, steps[1] if states[0] is None else None
        if self.used not in (None, used):
            raise Unlike
        self.used = used
        return True


def scanned(build: GraphBuilder, recurrence: Recurrence, body: Node) -> Node:
    """The states of a recurrence whose step is `body`, a function of the state before."""
    carried = recurrence.carried
    while body.op == "expand":
        body = body.inputs[0]
    others = [each for each in body.inputs if each is not carried]
    if carried.dtype == "bool" or any(each.op == "state" for each in nodes_of((body,))):
        raise Unlike
    if body.op in SCANNED and len(others) == 1 and not build.reaches(others[0], carried):
        terms, operation = [others[0]], SCANNED[body.op]
    elif is_float(carried.dtype):
        factor, term = _affine(build, body, carried)
        terms, operation = [term, factor], "linear"
    else:
        raise Unlike
    terms[0] = _with_first(build, recurrence, body, terms[0])
    given = [build.materialise(build.expand(build.operand(each, carried.dtype), carried.shape)) for each in terms]
    scan = Scan(recurrence.at, operation, reverse=recurrence.is_reverse)
    return build.node("scan", given, carried.shape, carried.dtype, scan)


def _affine(build: GraphBuilder, body: Node, carried: Node) -> tuple[Node, Node]:
    try:
        factor, term = affine_in(build, body, carried)
    except NotAffineError as error:
        raise Unlike from error
    zero = build.constant(0, carried.dtype)
    return factor or zero, term or zero


def _with_first(build: GraphBuilder, recurrence: Recurrence, body: Node, term: Node) -> Node:
    """The term that gives the first state from nothing before it."""
    at, carried = recurrence.at, recurrence.carried
    place = carried.shape[at] - 1 if recurrence.is_reverse else 0
    before, first = recurrence.used or (None, None)
    if before is not None:
        shape = (1,) * (len(carried.shape) - 1 - len(before.shape)) + before.shape
        first = _with_value(build, body, carried, build.reshape(before, along(shape, at, 1)))
        is_first = build("eq", build.iota(carried.shape, at), place)
        return build("where", is_first, first, build.expand(term, carried.shape), dtype=term.dtype)
    return term if first is None else with_odd(build, build.expand(term, carried.shape), first, place, at)


def with_odd(build: GraphBuilder, value: Node, odd: Node, place: int, at: int) -> Node:
    """The value with another one in a place along its dimension."""
    rank = len(value.shape) - 1
    if not same_class(odd.dtype, value.dtype):
        raise Unlike
    is_odd = build("eq", build.iota(value.shape, at), place)
    own = build.reshape(odd, along((1,) * (rank - len(odd.shape)) + odd.shape, at, 1))
    return build.expand(build("where", is_odd, own, value, dtype=value.dtype), value.shape)


def _with_value(build: GraphBuilder, node: Node, value: Node, other: Node) -> Node:
    """A pointwise function of a value, of another one instead."""
    if node is value:
        return other
    if not build.reaches(node, value):
        return node
    inputs = [_with_value(build, each, value, other) for each in node.inputs]
    if node.op == "expand":
        return build.expand(inputs[0], node.shape)
    return build(node.op, *inputs, dtype=node.dtype)

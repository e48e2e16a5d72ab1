"""What the buffers of a scatter by atomics hold: its sums and extremes, with what their places begin with."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.graph.attributes import Scatter
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import Node, nodes_of
from cutesmith.patterns.graph.simplification import constant_value
from cutesmith.patterns.scatters.analysis import ScatterProblem

JOINED = {"sum": "add", "max": "maximum", "min": "minimum"}
"""The pointwise operations whose other operand a place may begin with."""


@dataclass(frozen=True)
class Sum:
    """What one buffer holds: `scatter` combined with `base`, which is the value of `node`."""

    name: str
    scatter: Node
    node: Node
    base: Node | None
    ones: tuple[int, ...]
    """Dimensions in which it has size 1 and the result has not."""

    @property
    def operation(self) -> str:
        """How elements are combined; last where each place has at most one."""
        return Scatter.of(self.scatter).operation

    @property
    def state(self) -> str:
        """DSL type that elements are computed in."""
        return COMPUTE_TYPE[self.scatter.dtype]

    @property
    def is_begun(self) -> bool:
        """Whether a function computes what its places begin with."""
        return self.base is not None and self.base.op != "constant"

    @property
    def is_ordered(self) -> bool:
        """Whether the buffer holds integers in the order of floats."""
        return self.operation in ("max", "min") and self.state.startswith("Float")

    @property
    def memory(self) -> str:
        """DSL type of the buffer."""
        return self.state.replace("Float", "Int") if self.is_ordered else self.state


def sums_of(problem: ScatterProblem) -> tuple[Sum, ...]:
    """The scatters, each with what its places begin with; what tells where the last elements are is not counted."""
    graph = problem.graph
    found = [_sum(problem, node, each.name) for node, each in zip(problem.scatters, problem.combined, strict=True)]
    late = list(nodes_of(graph.outputs, {id(each.node) for each in found}))
    read = {id(node) for node in (*graph.outputs, *(given for node in late for given in node.inputs))}
    return tuple(each for each in found if id(each.node) in read)


def _sum(problem: ScatterProblem, scatter: Node, name: str) -> Sum:
    graph = problem.graph
    ones = tuple(dim for dim, size in enumerate(scatter.shape) if size == 1 != problem.shape[dim])
    users = [node for node in graph.nodes() if any(each is scatter for each in node.inputs)]
    plain = Sum(name, scatter, scatter, None, ones)
    if len(users) != 1 or users[0].shape != scatter.shape or any(scatter is output for output in graph.outputs):
        return plain
    (user,), operation = users, Scatter.of(scatter).operation
    base = _base(user, scatter, operation)
    if base is None or any(node.op == "scatter" for node in nodes_of((base,))) or user.dtype != scatter.dtype:
        return plain
    return Sum(name, scatter, user, base, ones)


def _base(user: Node, scatter: Node, operation: str) -> Node | None:
    """What a value combines a scatter with: of sums and extremes the other operand, of what is put there the old."""
    if user.op == JOINED.get(operation):
        first, second = user.inputs
        return second if first is scatter else first
    if operation == "last" and user.op == "where" and user.inputs[1] is scatter and _is_there(user.inputs[0], scatter):
        return user.inputs[2]
    return None


def _is_there(condition: Node, scatter: Node) -> bool:
    """Whether a condition is that a place has an element of the scatter's index."""
    if condition.op != "gt" or condition.inputs[0].op != "scatter":
        return False
    counted = condition.inputs[0]
    same = counted.inputs[0] is scatter.inputs[0] and constant_value(counted.inputs[1]) == 1
    return same and constant_value(condition.inputs[1]) == 0

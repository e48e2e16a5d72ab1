"""Lowerings of recurrent layers, the operations of `tracing/recurrent.py`."""

from __future__ import annotations

from cutesmith.patterns.graph.attributes import Constant, Recurrent
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers

_MAY_LACK = ("bias", "hidden", "cell")
"""Inputs that are zeros where they are not there."""


@lowers("cutesmith.recur")
def _recur(
    low: Lowering, given: Node, weights: Node, bias: Node | None, hidden: Node, kind: str, reverse: bool
) -> Node:
    return _states(low, {"given": given, "weights": weights, "bias": bias, "hidden": hidden}, kind, reverse)[0]


@lowers("cutesmith.recur_lstm")
def _recur_lstm(
    low: Lowering, given: Node, weights: Node, bias: Node | None, hidden: Node, cell: Node, reverse: bool
) -> tuple[Node, ...]:
    inputs = {"given": given, "weights": weights, "bias": bias, "hidden": hidden, "cell": cell}
    return tuple(_states(low, inputs, "lstm", reverse))


def _states(low: Lowering, inputs: dict[str, Node | None], kind: str, reverse: bool) -> list[Node]:
    """The results, as they lie in memory: all states, and of an LSTM the last cells."""
    build = low.build
    kept = {role: node for role, node in inputs.items() if node is not None}
    known = {role: build.stored(node) for role, node in kept.items() if role not in _MAY_LACK or not _is_zero(node)}
    results = list[Node]()
    for at, (shape, dtype) in enumerate(zip(low.shapes, low.dtypes, strict=True)):
        attrs = Recurrent(kind, tuple(known), reverse, cell=at == 1)
        results.append(build.stored(build.node("recur", tuple(known.values()), shape, dtype, attrs)))
    return results


def _is_zero(node: Node) -> bool:
    """Whether a first state is made of zeros, as networks have it that are given none."""
    while node.op in ("expand", "cast"):
        node = node.inputs[0]
    return node.op == "constant" and Constant.of(node).value == 0

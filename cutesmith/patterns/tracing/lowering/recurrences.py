"""Lowerings of recurrent layers, the operations of `tracing/recurrent.py`."""

from __future__ import annotations

from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.recurrent_steps import layer
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers


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
    known = {role: node for role, node in inputs.items() if node is not None}
    return layer(low.build, kind, known, reverse, results=len(low.shapes))

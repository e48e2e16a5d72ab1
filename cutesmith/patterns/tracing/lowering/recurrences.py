"""Lowerings of recurrent layers, the operations of `tracing/recurrent.py`, and of their cells."""

from __future__ import annotations

from collections.abc import Sequence

from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.recurrent_steps import layer
from cutesmith.patterns.graph.views import push_permute, push_slice
from cutesmith.patterns.tracing.lowering.contractions import matrix_product
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


# Cells: one operation is recorded, PyTorch's decompositions are 20; a loop of 512 steps is traced a dozen times


@lowers("lstm_cell")
def _lstm_cell(
    low: Lowering, x: Node, states: Sequence[Node], of_input: Node, of_state: Node, *biases: Node | None
) -> tuple[Node, Node]:
    hidden, cell = states
    given, product = _sums(low, x, of_input, *biases[:1]), _sums(low, hidden, of_state, *biases[1:])
    come, forget, new, out = _gates(low, _of(low, "add", product, given), 4)
    kept = _of(low, "mul", _of(low, "sigmoid", forget), cell)
    cell = _of(low, "add", kept, _of(low, "mul", _of(low, "sigmoid", come), _of(low, "tanh", new)))
    return _of(low, "mul", _of(low, "sigmoid", out), _of(low, "tanh", cell)), cell


@lowers("gru_cell")
def _gru_cell(low: Lowering, x: Node, hidden: Node, of_input: Node, of_state: Node, *biases: Node | None) -> Node:
    given = _gates(low, _sums(low, x, of_input, *biases[:1]), 3)
    product = _gates(low, _sums(low, hidden, of_state, *biases[1:]), 3)
    reset, update = (_of(low, "sigmoid", _of(low, "add", product[at], given[at])) for at in range(2))
    new = _of(low, "tanh", _of(low, "add", given[2], _of(low, "mul", reset, product[2])))
    return _of(low, "add", _of(low, "mul", _of(low, "sub", hidden, new), update), new)


def _sums(low: Lowering, x: Node, weights: Node, bias: Node | None = None) -> Node:
    product = matrix_product(low, x, push_permute(low.build, weights, [1, 0]))
    return product if bias is None else _of(low, "add", product, bias)


def _gates(low: Lowering, sums: Node, count: int) -> list[Node]:
    """Each gate's columns of a stored sum."""
    units = sums.shape[1] // count
    starts = range(0, sums.shape[1], units)
    return [low.build.slice_of(push_slice(low.build, sums, 1, at, units), sums, 1, at) for at in starts]


def _of(low: Lowering, op: str, *operands: Node) -> Node:
    return low.build(op, *map(low.operand, operands), dtype=low.dtype)

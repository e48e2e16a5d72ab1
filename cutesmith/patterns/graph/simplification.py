"""Rewrites that hold bit for bit: constant folding, neutral elements, operations that undo themselves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.patterns.graph.attributes import Constant, Number
from cutesmith.patterns.graph.dtypes import is_float, torch_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.operations import POINTWISE


def constant_result(op: str, inputs: Sequence[Node], dtype: str) -> Number | None:
    """`op` of constants, None where there is an input that is not constant.

    Folds in double precision: the kernel would round to float32 at each step, PyTorch folds in Python as well.
    """
    if any(node.op != "constant" for node in inputs):
        return None
    with _disable_current_modes():
        values = [torch.tensor(Constant.of(node).value, dtype=_wide(node.dtype)) for node in inputs]
        result = POINTWISE[op].torch(*values)
        return result.to(torch_dtype(dtype) if op == "cast" else _wide(dtype)).item()


def _wide(dtype: str) -> torch.dtype:
    return torch.float64 if is_float(dtype) else torch_dtype(dtype)


def equal_operand(op: str, inputs: Sequence[Node], dtype: str) -> Node | None:
    """The value that `op(inputs)` of `dtype` always equals, perhaps under another dtype; None where there is none."""
    row, first = POINTWISE[op], inputs[0]
    if op == "where" and first.op == "constant":
        return inputs[1] if Constant.of(first).value else inputs[2]
    if row.self_inverse and first.op == op:
        return first.inputs[0] if first.inputs[0].dtype == dtype else None
    if len(inputs) != 2:
        return None
    second = inputs[1]
    if row.neutral is not None and (row.neutral_for_floats or not is_float(dtype)):
        if constant_value(second) == row.neutral:
            return first
        if row.commutes and constant_value(first) == row.neutral:
            return second
    return first if row.idempotent and first is second else None


def constant_value(node: Node) -> Number | None:
    """The number that a node is, None where it is not constant."""
    return Constant.of(node).value if node.op == "constant" else None

"""Rewrites that hold bit for bit (up to the sign of zero where said): constant folding and neutral elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.patterns.building.dtypes import compute_dtype, is_float, torch_dtype
from cutesmith.patterns.tracing import operations
from cutesmith.patterns.tracing.graph import Node

if TYPE_CHECKING:
    from cutesmith.patterns.building.builder import GraphBuilder, Number

MAX_POWER = 16  # up to here an integer exponent becomes multiplications


def fold(build: GraphBuilder, op: str, inputs: Sequence[Node], dtype: str) -> Node | None:
    """A simpler node equal to `op(inputs)` of `dtype`, or None."""
    if all(node.op == "constant" for node in inputs):
        return _fold_constants(build, op, inputs, dtype)
    if op == "where" and inputs[0].op == "constant":
        return build.retype(inputs[1] if inputs[0].attrs["value"] else inputs[2], dtype)
    if op in ("neg", "logical_not", "bitwise_not") and inputs[0].op == op:
        inner = inputs[0].inputs[0]
        return build.retype(inner, dtype) if inner.dtype == dtype else None
    if op == "pow" and inputs[1].op == "constant":
        return _power(build, inputs[0], inputs[1].attrs["value"], dtype)
    return _neutral(build, op, inputs, dtype)


def _fold_constants(build: GraphBuilder, op: str, inputs: Sequence[Node], dtype: str) -> Node:
    """Folds in double precision: the kernel would round to float32 at each step, PyTorch folds in Python as well."""
    with _disable_current_modes():
        values = [torch.tensor(node.attrs["value"], dtype=_wide(node.dtype)) for node in inputs]
        if op == "cast":
            rounded = values[0].to(torch_dtype(dtype))
            return build.constant(rounded.item(), dtype)
        result = operations.POINTWISE[op](*values)
        return build.constant(result.to(_wide(dtype)).item(), dtype)


def _wide(dtype: str) -> torch.dtype:
    return torch.float64 if is_float(dtype) else torch_dtype(dtype)


def _value(node: Node) -> Number | None:
    return node.attrs["value"] if node.op == "constant" else None


def _neutral(build: GraphBuilder, op: str, inputs: Sequence[Node], dtype: str) -> Node | None:
    """x*1, x/1, x-0 (all exact for floats); x+0 for integers only, where no sign of zero can be lost."""
    if len(inputs) != 2:
        return None
    first, second = inputs
    exact_zero = _value(second) == 0 and (not is_float(dtype) or op == "sub")
    if (op in ("mul", "div") and _value(second) == 1) or (op in ("add", "sub") and exact_zero):
        return build.retype(first, dtype)
    if op == "mul" and _value(first) == 1 or op == "add" and _value(first) == 0 and not is_float(dtype):
        return build.retype(second, dtype)
    if op in ("minimum", "maximum") and first is second:
        return build.retype(first, dtype)
    return None


def _power(build: GraphBuilder, base: Node, exponent: Number, dtype: str) -> Node | None:
    """Small integer exponents become multiplications; ±0.5 become (r)sqrt, as PyTorch computes them."""
    if not is_float(dtype):
        small = 0 <= exponent <= MAX_POWER
        return build.retype(_repeated(build, base, int(exponent)), dtype) if small and base.dtype == dtype else None
    if exponent in (0.5, -0.5):
        return build("sqrt" if exponent > 0 else "rsqrt", base, dtype=dtype)
    if exponent != int(exponent) if abs(exponent) <= MAX_POWER else True:
        return None
    power = _repeated(build, base, abs(int(exponent)))
    return build.retype(build("reciprocal", power) if exponent < 0 else power, dtype)


def _repeated(build: GraphBuilder, base: Node, exponent: int) -> Node:
    if exponent == 0:
        return build.expand(build.constant(1, compute_dtype(base.dtype)), base.shape)
    if exponent == 1:
        return base
    half = _repeated(build, base, exponent // 2)
    square = build("mul", half, half)
    return build("mul", square, base) if exponent % 2 else square

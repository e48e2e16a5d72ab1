"""Lowerings of element-wise arithmetic, comparisons, logic, rounding and type conversion."""

from __future__ import annotations

import math
from typing import Any

from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.operations import POINTWISE, Kind, Pointwise
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, lowers


def _register(row: Pointwise) -> None:
    """Lowers the ATen names of a row of the table, whose operands are the row's own."""

    @lowers(*row.aten)
    def lower(low: Lowering, *operands: Operand) -> Node:
        if row.kind is Kind.LOGIC:
            return low.build(row.name, *(_truth(low, x) for x in operands))
        if row.kind is Kind.COMPARISON:
            dtype = low.promoted(*operands)
            return low.build(row.name, *(low.rounded(x, dtype) for x in operands))
        if row.kind in (Kind.ROUNDING, Kind.CLASSIFICATION):
            (x,) = operands
            assert isinstance(x, Node)
            if not is_float(x.dtype):
                return x if row.kind is Kind.ROUNDING else low.build.constant(False, "bool")
            return low.build(row.name, x)
        return low.build(row.name, *low.operands(*operands), dtype=low.dtype)


def _truth(low: Lowering, x: Operand) -> Node:
    node = low.operand(x, low.promoted(x))
    return node if node.dtype == "bool" else low.build("ne", node, 0)


for _row in POINTWISE.values():
    _register(_row)


@lowers("round")
def _round(low: Lowering, x: Node, *, decimals: int = 0) -> Node:
    """Half to even; with decimals PyTorch scales by a power of ten, rounds, and scales back."""
    build = low.build
    if not is_float(x.dtype):
        return x
    if decimals == 0:
        return build("round", x, dtype=low.dtype)
    ten = float(10 ** abs(decimals))
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return build(back, build("round", build(there, x, ten)), ten, dtype=low.dtype)


@lowers("frac")
def _frac(low: Lowering, x: Node) -> Node:
    return low.build("sub", x, low.build("trunc", x), dtype=low.dtype)


@lowers("sign", "sgn")
def _sign(low: Lowering, x: Node) -> Node:
    return x if x.dtype == "bool" else low.build("sign", x, dtype=low.dtype)


@lowers("square")
def _square(low: Lowering, x: Node) -> Node:
    (x,) = low.operands(x)
    return low.build("mul", x, x, dtype=low.dtype)


@lowers("positive", "conj", "resolve_conj", "resolve_neg")
def _positive(low: Lowering, x: Node) -> Node:
    return x


# Two operands


def _scaled(low: Lowering, value: Operand, alpha: Operand) -> Operand:
    if not isinstance(alpha, Node) and alpha == 1:
        return value
    return low.build("mul", *low.operands(value, alpha))


@lowers("add")
def _add(low: Lowering, a: Operand, b: Operand, alpha: Operand = 1) -> Node:
    if low.dtype == "bool":
        return low.build("logical_or", *low.operands(a, b))
    return low.build("add", *low.operands(a, _scaled(low, b, alpha)), dtype=low.dtype)


@lowers("sub", "subtract")
def _sub(low: Lowering, a: Operand, b: Operand, alpha: Operand = 1) -> Node:
    return low.build("sub", *low.operands(a, _scaled(low, b, alpha)), dtype=low.dtype)


@lowers("rsub")
def _rsub(low: Lowering, a: Operand, b: Operand, alpha: Operand = 1) -> Node:
    return low.build("sub", *low.operands(b, _scaled(low, a, alpha)), dtype=low.dtype)


@lowers("mul", "multiply")
def _mul(low: Lowering, a: Operand, b: Operand) -> Node:
    op = "logical_and" if low.dtype == "bool" else "mul"
    return low.build(op, *low.operands(a, b), dtype=low.dtype)


@lowers("div", "divide", "true_divide")
def _div(low: Lowering, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Node:
    if rounding_mode is None:
        return low.build("div", *low.operands(a, b), dtype=low.dtype)
    op = "floor_div" if rounding_mode == "floor" else "trunc_div"
    if rounding_mode == "trunc" and is_float(low.dtype):
        return low.build("trunc", low.build("div", *low.operands(a, b)), dtype=low.dtype)
    return low.build(op, *low.operands(a, b), dtype=low.dtype)


@lowers("pow")
def _pow(low: Lowering, a: Operand, b: Operand) -> Node:
    if low.dtype == "bool":
        raise low.build.unmatched("raises booleans to a power")
    return low.build("pow", *low.operands(a, b), dtype=low.dtype)


@lowers("bitwise_not")
def _bitwise_not(low: Lowering, x: Node) -> Node:
    return low.build("logical_not" if x.dtype == "bool" else "bitwise_not", x, dtype=low.dtype)


# Comparisons


@lowers("isfinite")
def _isfinite(low: Lowering, x: Node) -> Node:
    if not is_float(x.dtype):
        return low.build.constant(True, "bool")
    return low.build("lt", low.build("abs", x), math.inf)


def _register_infinity(aten: str, value: float) -> None:
    @lowers(aten)
    def infinity(low: Lowering, x: Node) -> Node:
        return low.build("eq", x, value) if is_float(x.dtype) else low.build.constant(False, "bool")


_register_infinity("isposinf", math.inf)
_register_infinity("isneginf", -math.inf)


@lowers("signbit")
def _signbit(low: Lowering, x: Node) -> Node:
    if is_float(x.dtype):
        return low.build("lt", low.build("where", low.build("eq", x, 0), low.build("reciprocal", x), x), 0)
    return low.build("lt", x, 0) if x.dtype != "bool" else low.build.constant(False, "bool")


# Selection


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(low: Lowering, condition: Node, a: Operand, b: Operand) -> Node:
    condition = condition if condition.dtype == "bool" else low.build("ne", condition, 0)
    return low.build("where", condition, *low.operands(a, b), dtype=low.dtype)


@lowers("masked_fill")
def _masked_fill(low: Lowering, x: Node, mask: Node, value: Operand) -> Node:
    return low.build("where", mask, *low.operands(value, x), dtype=low.dtype)


def _bounded(low: Lowering, op: str, x: Node, bound: Operand | None) -> Node:
    return x if bound is None else low.build(op, x, low.operand(bound), dtype=low.dtype)


@lowers("clamp", "clip")
def _clamp(low: Lowering, x: Node, min: Operand | None = None, max: Operand | None = None) -> Node:
    """NaN in x or in a bound tensor is carried; where min > max the result is max."""
    return _bounded(low, "minimum", _bounded(low, "maximum", low.operand(x), min), max)


@lowers("clamp_min")
def _clamp_min(low: Lowering, x: Node, min: Operand) -> Node:
    return _bounded(low, "maximum", low.operand(x), min)


@lowers("clamp_max")
def _clamp_max(low: Lowering, x: Node, max: Operand) -> Node:
    return _bounded(low, "minimum", low.operand(x), max)


def _register_nan_avoiding(aten: str, op: str) -> None:
    @lowers(aten)
    def nan_avoiding(low: Lowering, a: Operand, b: Operand) -> Node:
        a, b = low.operands(a, b)
        if not is_float(low.dtype):
            return low.build(op, a, b, dtype=low.dtype)
        either = low.build("where", low.build("isnan", b), a, low.build(op, a, b))
        return low.build("where", low.build("isnan", a), b, either, dtype=low.dtype)


_register_nan_avoiding("fmax", "maximum")
_register_nan_avoiding("fmin", "minimum")

_LIMITS = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


@lowers("nan_to_num")
def _nan_to_num(
    low: Lowering, x: Node, nan: Operand | None = None, posinf: Operand | None = None, neginf: Operand | None = None
) -> Node:
    if not is_float(x.dtype):
        return x
    build, limit = low.build, _LIMITS.get(x.dtype, 1.7976931348623157e308)
    value = build("where", build("isnan", x), low.operand(0.0 if nan is None else nan), x)
    value = build("where", build("eq", x, math.inf), low.operand(limit if posinf is None else posinf), value)
    low_value = low.operand(-limit if neginf is None else neginf)
    return build("where", build("eq", x, -math.inf), low_value, value, dtype=low.dtype)


# Several operands


@lowers("lerp")
def _lerp(low: Lowering, start: Node, end: Node, weight: Operand) -> Node:
    """PyTorch's two formulas (aten/src/ATen/native/Lerp.h): exact at both ends."""
    build = low.build
    a, b, w = low.operands(start, end, weight)
    difference = build("sub", b, a)
    near_start = build("add", a, build("mul", w, difference))
    near_end = build("sub", b, build("mul", difference, build("sub", 1.0, w)))
    return build("where", build("lt", build("abs", w), 0.5), near_start, near_end, dtype=low.dtype)


@lowers("addcmul")
def _addcmul(low: Lowering, x: Node, a: Node, b: Node, *, value: Operand = 1) -> Node:
    product = low.build("mul", *low.operands(_scaled(low, a, value), b))
    return low.build("add", low.operand(x), product, dtype=low.dtype)


@lowers("addcdiv")
def _addcdiv(low: Lowering, x: Node, a: Node, b: Node, *, value: Operand = 1) -> Node:
    quotient = low.build("div", *low.operands(_scaled(low, a, value), b))
    return low.build("add", low.operand(x), quotient, dtype=low.dtype)


@lowers("logaddexp")
def _logaddexp(low: Lowering, a: Node, b: Node) -> Node:
    return low.build.retype(_log_add(low, a, b), low.dtype)


@lowers("logaddexp2")
def _logaddexp2(low: Lowering, a: Node, b: Node) -> Node:
    build = low.build
    in_e = _log_add(low, *(build("mul", value, math.log(2)) for value in low.operands(a, b)))
    return build("div", in_e, math.log(2), dtype=low.dtype)


def _log_add(low: Lowering, a: Operand, b: Operand) -> Node:
    """max + log1p(exp(-|a-b|)); equal infinities are their own result (inf - inf would be NaN)."""
    build = low.build
    a, b = low.operands(a, b)
    top = build("maximum", a, b)
    below = build("neg", build("abs", build("sub", a, b)))
    total = build("add", top, build("log1p", build("exp", below)))
    same = build("logical_and", build("eq", a, b), build("isinf", a))
    return build("where", same, a, total, dtype=low.dtype)


@lowers("hypot")
def _hypot(low: Lowering, a: Node, b: Node) -> Node:
    """Scaled by the larger side, so that squares do not overflow; an infinite side wins over NaN (C99)."""
    build = low.build
    a, b = (build("abs", value) for value in low.operands(a, b))
    longest, shortest = build("maximum", a, b), build("minimum", a, b)
    ratio = build("div", shortest, longest)
    length = build("mul", longest, build("sqrt", build("add", build("mul", ratio, ratio), 1.0)))
    length = build("where", build("eq", longest, 0), longest, length)
    infinite = build("logical_or", build("isinf", a), build("isinf", b))
    return build("where", infinite, build.constant(math.inf, low.kind), length, dtype=low.dtype)


@lowers("copysign")
def _copysign(low: Lowering, a: Operand, b: Operand) -> Node:
    build = low.build
    a, b = low.operands(a, b)
    negative = build("lt", build("where", build("eq", b, 0), build("reciprocal", b), b), 0)
    size = build("abs", a)
    return build("where", negative, build("neg", size), size, dtype=low.dtype)


@lowers("heaviside")
def _heaviside(low: Lowering, x: Node, values: Node) -> Node:
    build = low.build
    x, values = low.operands(x, values)
    step = build("where", build("gt", x, 0), build.constant(1, low.kind), build.constant(0, low.kind))
    step = build("where", build("isnan", x), x, step) if is_float(low.dtype) else step
    return build("where", build("eq", x, 0), values, step, dtype=low.dtype)


@lowers("xlogy", "special_xlogy")
def _xlogy(low: Lowering, x: Operand, y: Operand) -> Node:
    """x·log(y), 0 where x is 0, NaN where y is NaN."""
    build = low.build
    x, y = low.operands(x, y)
    product = build("where", build("eq", x, 0), build.constant(0, low.kind), build("mul", x, build("log", y)))
    return build("where", build("isnan", y), y, product, dtype=low.dtype)


@lowers("logit", "special_logit")
def _logit(low: Lowering, x: Node, eps: float | None = None) -> Node:
    build = low.build
    (x,) = low.operands(x)
    if eps is not None:
        x = build("minimum", build("maximum", x, low.operand(eps)), build("sub", 1.0, low.operand(eps)))
    return build("log", build("div", x, build("sub", 1.0, x)), dtype=low.dtype)


@lowers("sinc", "special_sinc")
def _sinc(low: Lowering, x: Node) -> Node:
    build = low.build
    (x,) = low.operands(x)
    angle = build("mul", x, math.pi)
    one = build.constant(1, low.kind)
    return build("where", build("eq", x, 0), one, build("div", build("sin", angle), angle), dtype=low.dtype)


@lowers("deg2rad")
def _deg2rad(low: Lowering, x: Node) -> Node:
    return low.build("mul", low.operand(x), math.pi / 180, dtype=low.dtype)


@lowers("rad2deg")
def _rad2deg(low: Lowering, x: Node) -> Node:
    return low.build("mul", low.operand(x), 180 / math.pi, dtype=low.dtype)


# Types and copies


@lowers("_to_copy", "to", "type_as", "prims.convert_element_type")
def _to_copy(low: Lowering, x: Node, *_: Any, **__: Any) -> Node:
    return low.build.cast(x, low.dtype)


@lowers("clone", "detach", "alias", "lift", "contiguous", "view_of", "prims.view_of", "_reshape_copy")
def _same(low: Lowering, x: Node, *_: Any, **__: Any) -> Node:
    return low.build.reshape(x, tuple(low.shapes[0]))


@lowers("copy")
def _copy(low: Lowering, x: Node, source: Node, *_: Any) -> Node:
    return low.build.cast(source, x.dtype)

"""Lowerings of element-wise arithmetic, comparisons, logic, rounding and type conversion."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.operations import POINTWISE, Kind, Pointwise
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, Rule, lowers


def _register(row: Pointwise) -> None:
    """Lowers the ATen names of a row of the table, whose operands are the row's own."""

    @lowers(*row.aten)
    def lower(low: Lowering, *operands: Operand) -> Node:
        if row.kind is Kind.LOGIC:
            return low.build(row.name, *(low.truth(low.operand(x, low.promoted(x))) for x in operands))
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


@lowers("frexp")
def _frexp(low: Lowering, x: Node) -> tuple[Node, Node]:
    return low.build("mantissa", low.operand(x)), low.build("exponent", low.operand(x))


# Two operands


def _scaled(low: Lowering, value: Operand, alpha: Operand) -> Operand:
    if not isinstance(alpha, Node) and alpha == 1:
        return value
    return low.build("mul", *low.operands(value, alpha))


@lowers("add", "prims.add")
def _add(low: Lowering, a: Operand, b: Operand, alpha: Operand = 1) -> Node:
    if low.dtype == "bool":
        return low.build("logical_or", *low.operands(a, b))
    return low.build("add", *low.operands(a, _scaled(low, b, alpha)), dtype=low.dtype)


@lowers("mul", "prims.mul")
def _mul(low: Lowering, a: Operand, b: Operand) -> Node:
    op = "logical_and" if low.dtype == "bool" else "mul"
    return low.build(op, *low.operands(a, b), dtype=low.dtype)


@lowers("div")
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


@lowers("signbit")
def _signbit(low: Lowering, x: Node) -> Node:
    if is_float(x.dtype):
        return low.build("lt", low.build("where", low.build("eq", x, 0), low.build("reciprocal", x), x), 0)
    return low.build("lt", x, 0) if x.dtype != "bool" else low.build.constant(False, "bool")


# Selection


@lowers("where.self")
def _where(low: Lowering, condition: Node, a: Operand, b: Operand) -> Node:
    return low.build("where", low.truth(condition), *low.operands(a, b), dtype=low.dtype)


def _avoiding_nan(op: str, low: Lowering, a: Operand, b: Operand) -> Node:
    a, b = low.operands(a, b)
    result = low.build(op, a, b)
    if not is_float(low.dtype):
        return result
    return low.build("where", low.build("isnan", a), b, low.build("where", low.build("isnan", b), a, result))


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
    """1 above 0, `values` at 0, else 0, for NaN too."""
    build = low.build
    x, values = low.operands(x, values)
    step = build("where", build("gt", x, 0), build.constant(1, low.kind), build.constant(0, low.kind))
    return build("where", build("eq", x, 0), values, step, dtype=low.dtype)


@lowers("angle")
def _angle(low: Lowering, x: Node) -> Node:
    """Pi for negative numbers, 0 for others, NaN for NaN."""
    build, (value,) = low.build, low.operands(x)
    angle = build("where", build("lt", value, 0), build.constant(math.pi, low.kind), build.constant(0, low.kind))
    return build("where", build("isnan", value), value, angle, dtype=low.dtype)


@lowers("xlogy")
def _xlogy(low: Lowering, x: Operand, y: Operand) -> Node:
    """x·log(y), 0 where x is 0, NaN where y is NaN."""
    build = low.build
    x, y = low.operands(x, y)
    product = build("where", build("eq", x, 0), build.constant(0, low.kind), build("mul", x, build("log", y)))
    return build("where", build("isnan", y), y, product, dtype=low.dtype)


@lowers("logit")
def _logit(low: Lowering, x: Node, eps: float | None = None) -> Node:
    build = low.build
    (x,) = low.operands(x)
    if eps is not None:
        x = build("minimum", build("maximum", x, low.operand(eps)), build("sub", 1.0, low.operand(eps)))
    return build("log", build("div", x, build("sub", 1.0, x)), dtype=low.dtype)


@lowers("sinc")
def _sinc(low: Lowering, x: Node) -> Node:
    build = low.build
    (x,) = low.operands(x)
    angle = build("mul", x, math.pi)
    one = build.constant(1, low.kind)
    return build("where", build("eq", x, 0), one, build("div", build("sin", angle), angle), dtype=low.dtype)


# Types and copies


@lowers("_to_copy", "prims.convert_element_type")
def _to_copy(low: Lowering, x: Node, *_: Any, **__: Any) -> Node:
    return low.build.cast(x, low.dtype)


@lowers("prims.clone")
def _stored(low: Lowering, x: Node, **_: Any) -> Node:
    """By this decompositions say that a value is computed once and read from memory."""
    return low.build.stored(x)


@lowers("clone", "detach", "alias", "lift", "prims.view_of")
def _same(low: Lowering, x: Node, *_: Any, **__: Any) -> Node:
    return low.build.reshape(x, tuple(low.shapes[0]))


@lowers("copy")
def _copy(low: Lowering, x: Node, source: Node, *_: Any) -> Node:
    return low.build.cast(source, x.dtype)


# What one expression says


def _with_product(op: str, low: Lowering, x: Node, a: Node, b: Node, *, value: Operand = 1) -> Node:
    """x + value·a·b, or a/b."""
    return low.build("add", low.operand(x), low.build(op, *low.operands(_scaled(low, a, value), b)))


def _log_add_2(low: Lowering, a: Node, b: Node) -> Node:
    in_e = _log_add(low, *(low.build("mul", value, math.log(2)) for value in low.operands(a, b)))
    return low.build("div", in_e, math.log(2))


_EXPRESSIONS: dict[str, Rule] = {
    "frac": lambda low, x: low.build("sub", x, low.build("trunc", x)),
    "sign": lambda low, x: x if x.dtype == "bool" else low.build("sign", x),
    "sgn": lambda low, x: x if x.dtype == "bool" else low.build("sign", x),
    "sub": lambda low, a, b, alpha=1: low.build("sub", *low.operands(a, _scaled(low, b, alpha)), dtype=low.dtype),
    "rsub": lambda low, a, b, alpha=1: low.build("sub", *low.operands(b, _scaled(low, a, alpha)), dtype=low.dtype),
    "bitwise_not": lambda low, x: low.build("logical_not" if x.dtype == "bool" else "bitwise_not", x),
    "masked_fill": lambda low, x, mask, value: low.build("where", mask, *low.operands(value, x), dtype=low.dtype),
    "clamp": lambda low, x, min=None, max=None: low.clamped(low.operand(x), min, max),
    "clamp_min": lambda low, x, min: low.clamped(low.operand(x), min, None),
    "clamp_max": lambda low, x, max: low.clamped(low.operand(x), None, max),
    "fmax": partial(_avoiding_nan, "maximum"),
    "fmin": partial(_avoiding_nan, "minimum"),
    "addcmul": partial(_with_product, "mul"),
    "addcdiv": partial(_with_product, "div"),
    "logaddexp": _log_add,
    "logaddexp2": _log_add_2,
    "deg2rad": lambda low, x: low.build("mul", low.operand(x), math.pi / 180),
    "rad2deg": lambda low, x: low.build("mul", low.operand(x), 180 / math.pi),
}
for _name, _rule in _EXPRESSIONS.items():
    lowers(_name)(_rule)

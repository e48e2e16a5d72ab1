"""The multi-function unit (MUFU) of sm_90 bit for bit, as LLVM IR: rcp, rsqrt, sqrt, ex2, lg2, sin, cos, tanh of f32.

Operands below 2^-126 count as zero and results below it are zero (tanh keeps them). Angles are in turns. Negative
fixed-point numbers are formed by complementing bits, not by subtracting: results of negative operands are not exact
mirrors, and only where nothing is left of the fraction is a power of two exact.
"""

from __future__ import annotations

from collections.abc import Callable

from cutesmith.emulator.emitters.formats import F32, flush, is_nan, outlined
from cutesmith.emulator.emitters.unit_tables import TABLES, TANH_ROWS
from cutesmith.emulator.native.emitter import Emitter

_INFINITY, _ONE = F32.infinity, 127 << 23
_NAN = str(F32.nan)


def unit(emitter: Emitter, function: str, bits: str) -> str:
    """The pattern (i32) that the unit gives for an f32 pattern (i32); `function` is a key of FUNCTIONS."""
    return outlined(emitter, f"mufu.{function}", "i32", [f"i32 {bits}"], FUNCTIONS[function])


# Interpolation --------------------------------------------------------------------------------------------------------


def _interpolated(emitter: Emitter, function: str, row: str, t: str) -> str:
    """c0 + c1 * t + c2 * s(t) of a table's row (i32) for a 17-bit t (i32): i64, in 2^-17 of a unit of the result."""
    coefficients = TABLES[function].coefficients()
    values = ", ".join(f"i64 {value}" for triple in coefficients for value in triple)
    table, kind = f"mufu.table.{function}", f"[{3 * len(coefficients)} x i64]"
    emitter.module.declarations.setdefault(table, f"@{table} = internal constant {kind} [{values}]")
    first = emitter.op("mul i32 {}, 3", row)
    loaded = []
    for place in range(3):
        index = emitter.op(f"add i32 {{}}, {place}", first)
        pointer = emitter.op(f"getelementptr i64, ptr @{table}, i32 {{}}", index)
        loaded.append(emitter.op("load i64, ptr {}", pointer))
    linear = emitter.op("mul i64 {}, {}", loaded[1], emitter.resize(t, 32, 64))
    square = emitter.op("mul i64 {}, {}", loaded[2], emitter.resize(_square(emitter, t), 32, 64))
    return emitter.op("add i64 {}, {}", loaded[0], emitter.op("add i64 {}, {}", linear, square))


def _square(emitter: Emitter, t: str) -> str:
    """t * t of a 17-bit fraction in units of 2^-15, as a folded squarer makes it that drops every product below 2^-15.

    Bit i (weight 2^-i) meets itself, with weight 2^-2i, and each lower bit j once, with weight 2^-(i+j-1).
    """
    op, total = emitter.op, "0"
    for i in range(1, 8):
        lower = op(f"and i32 {{}}, {(1 << 16 - 2 * i) - 1}", op(f"lshr i32 {{}}, {i + 1}", t))
        products = op(f"add i32 {{}}, {1 << 15 - 2 * i}", lower)
        is_set = op("trunc i32 {} to i1", op(f"lshr i32 {{}}, {17 - i}", t))
        total = op("add i32 {}, {}", total, emitter.select(is_set, "i32", products, "0"))
    return total


def _shifted(emitter: Emitter, accumulated: str, bits: int) -> str:
    return emitter.op("trunc i64 {} to i32", emitter.op(f"ashr i64 {{}}, {bits}", accumulated))


def _normalised(emitter: Emitter, value: str, unit_exponent: int) -> str:
    """A number >= 0 (i64) of units 2^unit_exponent as an f32 pattern, cut off after 24 bits."""
    op = emitter.op
    zeros = emitter.intrinsic("llvm.ctlz.i64", "i64", f"i64 {value}", "i1 false")
    shift = op("and i64 {}, 63", zeros)
    significand = op("lshr i64 {}, 40", op("shl i64 {}, {}", value, shift))
    exponent = op(f"sub i64 {63 + unit_exponent + 127 - 1}, {{}}", zeros)
    bits = op("add i64 {}, {}", op("shl i64 {}, 23", exponent), significand)
    return emitter.resize(emitter.select(op("icmp eq i64 {}, 0", value), "i64", "0", bits), 64, 32)


def _magnitude(emitter: Emitter, bits: str) -> str:
    return emitter.op("and i32 {}, 2147483647", bits)


def _sign(emitter: Emitter, bits: str) -> str:
    return emitter.op("and i32 {}, -2147483648", bits)


def _fraction(emitter: Emitter, magnitude: str) -> tuple[str, str, str]:
    """(unbiased exponent, mantissa, its low 17 bits) of a magnitude."""
    exponent = emitter.op("sub i32 {}, 127", emitter.op("lshr i32 {}, 23", magnitude))
    mantissa = emitter.op("and i32 {}, 8388607", magnitude)
    return exponent, mantissa, emitter.op("and i32 {}, 131071", mantissa)


def _chosen(emitter: Emitter, result: str, *cases: tuple[str, str]) -> str:
    """The value of the last of (condition, value) that holds, else the result (i32)."""
    for condition, value in cases:
        result = emitter.select(condition, "i32", value, result)
    return result


# Functions ------------------------------------------------------------------------------------------------------------


def _reciprocal(emitter: Emitter, bits: str) -> str:
    op = emitter.op
    magnitude, sign = _magnitude(emitter, flush(emitter, bits, F32)), _sign(emitter, bits)
    exponent, mantissa, _ = _fraction(emitter, magnitude)
    t = op("shl i32 {}, 1", op("and i32 {}, 65535", mantissa))
    value = _shifted(emitter, _interpolated(emitter, "rcp", op("lshr i32 {}, 16", mantissa), t), 17)
    value = op("add i32 {}, {}", value, str(_ONE - (1 << 23)))
    value = op("sub i32 {}, {}", value, op("shl i32 {}, 23", exponent))
    tiny = op(f"icmp slt i32 {{}}, {F32.least_normal}", value)
    infinite, zero = (op(f"icmp eq i32 {{}}, {limit}", magnitude) for limit in (_INFINITY, 0))
    value = _chosen(emitter, value, (tiny, "0"), (infinite, "0"), (zero, str(_INFINITY)))
    return _chosen(emitter, op("or i32 {}, {}", value, sign), (is_nan(emitter, bits, F32), _NAN))


def _root(emitter: Emitter, function: str, bits: str) -> tuple[str, str, str]:
    """(halved exponent in place, value of the quadratic, whether the operand is a power of four) of a root."""
    op = emitter.op
    exponent, mantissa, t = _fraction(emitter, _magnitude(emitter, bits))
    odd = op("and i32 {}, 1", exponent)
    row = op("or i32 {}, {}", op("shl i32 {}, 6", odd), op("lshr i32 {}, 17", mantissa))
    value = _shifted(emitter, _interpolated(emitter, function, row, t), 17)
    exact = op("icmp eq i32 {}, 0", op("or i32 {}, {}", odd, mantissa))
    return op("shl i32 {}, 23", op("ashr i32 {}, 1", exponent)), value, exact


def _root_domain(emitter: Emitter, bits: str, result: str, at_zero: str, at_infinity: str) -> str:
    """The result, or what stands for zeros, infinity, numbers below zero and NaN."""
    op = emitter.op
    below = op("icmp slt i32 {}, 0", bits)
    infinite = op(f"icmp eq i32 {{}}, {_INFINITY}", bits)
    zero = op("icmp eq i32 {}, 0", _magnitude(emitter, bits))
    nan = is_nan(emitter, bits, F32)
    return _chosen(emitter, result, (infinite, at_infinity), (below, _NAN), (zero, at_zero), (nan, _NAN))


def _reciprocal_root(emitter: Emitter, bits: str) -> str:
    op, bits = emitter.op, flush(emitter, bits, F32)
    exponent, value, exact = _root(emitter, "rsqrt", bits)
    value = emitter.select(exact, "i32", str(_ONE), op(f"add i32 {{}}, {_ONE - (1 << 23)}", value))
    at_zero = op(f"or i32 {{}}, {_INFINITY}", _sign(emitter, bits))
    return _root_domain(emitter, bits, op("sub i32 {}, {}", value, exponent), at_zero, "0")


def _square_root(emitter: Emitter, bits: str) -> str:
    op, bits = emitter.op, flush(emitter, bits, F32)
    exponent, value, _ = _root(emitter, "sqrt", bits)
    value = op("add i32 {}, {}", op(f"add i32 {{}}, {_ONE}", value), exponent)
    return _root_domain(emitter, bits, value, bits, str(_INFINITY))


def _fixed(emitter: Emitter, bits: str, fraction_bits: int, limit: int) -> str:
    """|a| as an i64 of units 2^-fraction_bits, cut off; 0 for |a| >= 2^limit and NaN."""
    number = emitter.op("fpext float {} to double", emitter.to_float(_magnitude(emitter, bits), "float"))
    below = emitter.op(f"icmp ult i32 {{}}, {127 + limit << 23}", _magnitude(emitter, bits))
    scaled = emitter.op(
        f"fmul double {{}}, {float(1 << fraction_bits)}", emitter.select(below, "double", number, "0.0")
    )
    return emitter.op("fptosi double {} to i64", scaled)


def _power(emitter: Emitter, bits: str) -> str:
    """2^a: the 23 bits of a below the point choose row and t; the others are the exponent."""
    op = emitter.op
    fixed = op("trunc i64 {} to i32", _fixed(emitter, bits, 23, 8))
    negative = op("icmp slt i32 {}, 0", bits)
    number = emitter.select(negative, "i32", op("xor i32 {}, -1", fixed), fixed)
    fraction = op("and i32 {}, 8388607", number)
    row, t = op("lshr i32 {}, 17", fraction), op("and i32 {}, 131071", fraction)
    value = _shifted(emitter, _interpolated(emitter, "ex2", row, t), 17)
    value = op(f"add i32 {{}}, {_ONE}", value)
    whole = op("icmp eq i32 {}, 0", op("and i32 {}, 8388607", fixed))
    value = emitter.select(whole, "i32", str(_ONE), value)
    signed = emitter.select(whole, "i32", emitter.select(negative, "i32", op("sub i32 0, {}", fixed), fixed), number)
    value = op("add i32 {}, {}", value, op("and i32 {}, -8388608", signed))
    # |a| >= 256 was taken as 0; the sum wraps beyond 2^128, so the range is asked of the operand.
    magnitude = _magnitude(emitter, bits)
    large = op(f"icmp uge i32 {{}}, {127 + 7 << 23}", magnitude)
    tiny = op(f"icmp slt i32 {{}}, {F32.least_normal}", value)
    outside = emitter.select(negative, "i32", "0", str(_INFINITY))
    return _chosen(emitter, value, (tiny, "0"), (large, outside), (is_nan(emitter, bits, F32), _NAN))


def _logarithm(emitter: Emitter, bits: str) -> str:
    """log2(a): exponent and table make one fixed-point number of units 2^-36."""
    op, bits = emitter.op, flush(emitter, bits, F32)
    exponent, mantissa, t = _fraction(emitter, _magnitude(emitter, bits))
    fraction = op("ashr i64 {}, 3", _interpolated(emitter, "lg2", op("lshr i32 {}, 17", mantissa), t))
    whole = op("shl i64 {}, 36", emitter.resize(exponent, 32, 64, signed=True))
    number = op("add i64 {}, {}", whole, fraction)
    negative = op("icmp slt i64 {}, 0", number)
    value = _normalised(emitter, emitter.select(negative, "i64", op("xor i64 {}, -1", number), number), -36)
    value = op("or i32 {}, {}", value, emitter.select(negative, "i32", str(F32.sign), "0"))
    value = emitter.select(op(f"icmp eq i32 {{}}, {_ONE}", bits), "i32", "0", value)
    return _root_domain(emitter, bits, value, str(F32.sign | _INFINITY), str(_INFINITY))


def _circular(quarters: int) -> Callable[[Emitter, str], str]:
    """The sine of an angle in turns plus `quarters` of a turn: 25 bits below the point, two for the quadrant."""

    def build(emitter: Emitter, bits: str) -> str:
        op = emitter.op
        angle = op("trunc i64 {} to i32", _fixed(emitter, bits, 25, 25))
        quadrant = op(f"add i32 {{}}, {quarters}", op("lshr i32 {}, 23", angle))
        mirrored, lower_half = (op("trunc i32 {} to i1", op(f"lshr i32 {{}}, {bit}", quadrant)) for bit in (0, 1))
        angle = op("xor i32 {}, {}", angle, emitter.select(mirrored, "i32", "-1", "0"))
        angle = op("and i32 {}, 8388607", angle)
        row, t = op("lshr i32 {}, 17", angle), op("and i32 {}, 131071", angle)
        value = _normalised(emitter, op("ashr i64 {}, 4", _interpolated(emitter, "sin", row, t)), -37)
        sign = emitter.select(lower_half, "i32", str(F32.sign), "0")
        if not quarters:
            sign = op("xor i32 {}, {}", sign, _sign(emitter, bits))
        endless = op(f"icmp uge i32 {{}}, {_INFINITY}", _magnitude(emitter, bits))
        return _chosen(emitter, op("or i32 {}, {}", value, sign), (endless, _NAN))

    return build


def _hyperbolic_tangent(emitter: Emitter, bits: str) -> str:
    """tanh(a): a itself below 2^-8, 1 from 8 on."""
    op, magnitude = emitter.op, _magnitude(emitter, bits)
    exponent, mantissa, _ = _fraction(emitter, magnitude)
    clamped = emitter.intrinsic("llvm.smax.i32", "i32", f"i32 {op('add i32 {}, 8', exponent)}", "i32 0")
    clamped = emitter.intrinsic("llvm.smin.i32", "i32", f"i32 {clamped}", f"i32 {len(TANH_ROWS) - 1}")
    first, index_bits = (_looked_up(emitter, name, clamped) for name in ("first", "bits"))
    row = op("add i32 {}, {}", first, op("lshr i32 {}, {}", mantissa, op("sub i32 23, {}", index_bits)))
    t = op("and i32 {}, 131071", op("lshr i32 {}, {}", mantissa, op("sub i32 6, {}", index_bits)))
    value = _normalised(emitter, _interpolated(emitter, "tanh", row, t), -41)
    small = op("icmp slt i32 {}, -8", exponent)
    large = op("icmp sge i32 {}, 3", exponent)
    value = _chosen(emitter, value, (small, magnitude), (large, str(_ONE)))
    return _chosen(emitter, op("or i32 {}, {}", value, _sign(emitter, bits)), (is_nan(emitter, bits, F32), _NAN))


def _looked_up(emitter: Emitter, what: str, place: str) -> str:
    """The first row of a power of two in the table of tanh, or the bits of the row number within it."""
    firsts = [sum(TANH_ROWS[:index]) for index in range(len(TANH_ROWS))]
    values = firsts if what == "first" else [rows.bit_length() - 1 for rows in TANH_ROWS]
    table = f"mufu.tanh.{what}"
    listed = ", ".join(f"i32 {value}" for value in values)
    emitter.module.declarations.setdefault(table, f"@{table} = internal constant [{len(values)} x i32] [{listed}]")
    return emitter.op("load i32, ptr {}", emitter.op(f"getelementptr i32, ptr @{table}, i32 {{}}", place))


FUNCTIONS: dict[str, Callable[[Emitter, str], str]] = {
    "rcp": _reciprocal,
    "rsqrt": _reciprocal_root,
    "sqrt": _square_root,
    "ex2": _power,
    "lg2": _logarithm,
    "sin": _circular(0),
    "cos": _circular(1),
    "tanh": _hyperbolic_tangent,
}
"""What writes the body of each function: (emitter, pattern of the operand) -> pattern of the result."""

"""`.approx` functions: what ptxas makes of each PTX form around the multi-function unit (`unit.py`).

The unit takes and gives f32 with subnormals flushed; forms without `.ftz` scale their operand into the normal range and
the result back, as the machine code of sm_90 does.
"""

from __future__ import annotations

from cutesmith.emulator.emitters.float_instructions import assign_numbers, format_of, numbers
from cutesmith.emulator.emitters.floats import F64_DEFAULT_NAN, F64_QUIET
from cutesmith.emulator.emitters.formats import (
    BF16,
    F16,
    F32,
    F64,
    Format,
    canonical,
    float_constant,
    flush,
    is_nan,
    magnitude_of,
    narrow,
    outlined,
    round_float,
    to_double,
    widen,
)
from cutesmith.emulator.emitters.unit import unit
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Instruction

_TINY, _HUGE = 0x00800000, 0x7E800000  # 2^-126, 2^126
_HIGH_INFINITY = 0x7FF00000  # upper half of an f64
_TURNS = float_constant(0x22F983 * 2.0**-26 + 2.0**-3)  # 1 / (2 pi) as ptxas writes it: 0x3E22F983


@native("rcp.approx{,.ftz}.f32")
def reciprocal(emitter: Emitter, instruction: Instruction) -> None:
    """1 / a."""
    value = emitter.value(instruction.operands[1], 32)
    if "ftz" in instruction.modifiers:
        result = unit(emitter, "rcp", value)
    else:
        scale = emitter.select(_below(emitter, value, _TINY), "float", "16777216.0", "1.0")
        scale = emitter.select(_above(emitter, value, _HUGE), "float", "2.5e-01", scale)
        scaled = _product(emitter, emitter.to_float(value, "float"), scale)
        result = _product_bits(emitter, emitter.to_float(unit(emitter, "rcp", scaled), "float"), scale)
    emitter.assign(instruction.operands[0], result, 32)


_RESCALED = {"sqrt": "0.000244140625", "rsqrt": "4096.0"}


@native("{sqrt,rsqrt}.approx{,.ftz}.f32")
def square_root(emitter: Emitter, instruction: Instruction) -> None:
    """sqrt(a) or 1 / sqrt(a)."""
    value = emitter.value(instruction.operands[1], 32)
    if "ftz" in instruction.modifiers:
        result = unit(emitter, instruction.opcode, value)
    else:
        tiny = _below(emitter, value, _TINY)
        result = unit(emitter, instruction.opcode, _scaled_where(emitter, tiny, value, "16777216.0"))
        result = _scaled_where(emitter, tiny, result, _RESCALED[instruction.opcode])
    emitter.assign(instruction.operands[0], result, 32)


@native("lg2.approx{,.ftz}.f32")
def logarithm(emitter: Emitter, instruction: Instruction) -> None:
    """log2(a)."""
    value = emitter.value(instruction.operands[1], 32)
    if "ftz" in instruction.modifiers:
        result = unit(emitter, "lg2", value)
    else:
        tiny = _below(emitter, value, _TINY)
        near = unit(emitter, "lg2", _scaled_where(emitter, tiny, value, "16777216.0"))
        lowered = emitter.op("fadd float {}, -24.0", emitter.to_float(near, "float"))
        result = emitter.select(tiny, "i32", canonical(emitter, lowered, "float", F32), near)
    emitter.assign(instruction.operands[0], result, 32)


@native("ex2.approx{,.ftz}.f32")
def exponential(emitter: Emitter, instruction: Instruction) -> None:
    """2^a."""
    value = emitter.value(instruction.operands[1], 32)
    if "ftz" in instruction.modifiers:
        result = unit(emitter, "ex2", value)
    else:
        # Halved below -126, and the result squared: the square may be subnormal. NaN compares false, as the SETP.GEU.
        small = emitter.op("fcmp olt float {}, -126.0", emitter.to_float(value, "float"))
        near = unit(emitter, "ex2", _scaled_where(emitter, small, value, "0.5"))
        number = emitter.to_float(near, "float")
        result = emitter.select(small, "i32", _product_bits(emitter, number, number), near)
    emitter.assign(instruction.operands[0], result, 32)


@native("{sin,cos}.approx{,.ftz}.f32")
def circular(emitter: Emitter, instruction: Instruction) -> None:
    """sin(a) or cos(a): a in turns, rounded toward zero, goes to the unit."""
    value = emitter.value(instruction.operands[1], 32)
    turns = emitter.op(f"fmul double {{}}, {_TURNS}", to_double(emitter, value, F32))
    bits = emitter.resize(narrow(emitter, turns, F32, "rz"), 64, 32)
    emitter.assign(instruction.operands[0], unit(emitter, instruction.opcode, bits), 32)


@native("tanh.approx.f32")
def hyperbolic_tangent(emitter: Emitter, instruction: Instruction) -> None:
    """tanh(a)."""
    value = emitter.value(instruction.operands[1], 32)
    emitter.assign(instruction.operands[0], unit(emitter, "tanh", value), 32)


@native("div.{approx,full}{,.ftz}.f32")
def divide(emitter: Emitter, instruction: Instruction) -> None:
    """a * (1 / b); without `.ftz` both are scaled where b is subnormal, and by 1/4 where `.full` meets a huge b."""
    a, b = (emitter.value(operand, 32) for operand in instruction.operands[1:])
    flushes = "ftz" in instruction.modifiers
    if flushes:
        a, b = flush(emitter, a, F32), flush(emitter, b, F32)
    conditions = [] if flushes else [(_below(emitter, b, _TINY), "16777216.0")]
    if "full" in instruction.modifiers:
        conditions.append((_above(emitter, b, _HUGE), "2.5e-01"))
    for condition, scale in conditions:
        a, b = (_scaled_where(emitter, condition, value, scale, flushes) for value in (a, b))
    numbers = [emitter.to_float(value, "float") for value in (unit(emitter, "rcp", b), a)]
    result = _product_bits(emitter, *numbers)
    emitter.assign(instruction.operands[0], flush(emitter, result, F32) if flushes else result, 32)


def _below(emitter: Emitter, value: str, limit: int) -> str:
    return emitter.op(f"icmp ult i32 {{}}, {limit}", emitter.op(f"and i32 {{}}, {F32.sign - 1}", value))


def _above(emitter: Emitter, value: str, limit: int) -> str:
    """|value| > limit, false for a NaN (i1)."""
    magnitude = emitter.op(f"and i32 {{}}, {F32.sign - 1}", value)
    above = emitter.op(f"icmp ugt i32 {{}}, {limit}", magnitude)
    number = emitter.op(f"icmp ule i32 {{}}, {F32.infinity}", magnitude)
    return emitter.op("and i1 {}, {}", above, number)


def _scaled_where(emitter: Emitter, condition: str, value: str, scale: str, flushes: bool = False) -> str:
    scaled = _product(emitter, emitter.to_float(value, "float"), scale)
    if flushes:
        scaled = flush(emitter, scaled, F32)
    return emitter.select(condition, "i32", scaled, value)


def _product(emitter: Emitter, a: str, b: str) -> str:
    return emitter.to_bits(emitter.op("fmul float {}, {}", a, b), "float")


def _product_bits(emitter: Emitter, a: str, b: str) -> str:
    return canonical(emitter, emitter.op("fmul float {}, {}", a, b), "float", F32)


# Narrow formats and f64 -----------------------------------------------------------------------------------------------


@native("{ex2,tanh}.approx.f16{,x2}", "ex2.approx.ftz.bf16{,x2}", "tanh.approx.bf16{,x2}")
def half_precision(emitter: Emitter, instruction: Instruction) -> None:
    """2^a or tanh(a) of an f16 or bf16, or of both halves."""
    form, _ = format_of(instruction)
    destination, source = instruction.operands
    values = numbers(emitter, instruction, source)
    assign_numbers(emitter, destination, [_cut_off(emitter, instruction.opcode, value, form) for value in values], 16)


def _cut_off(emitter: Emitter, function: str, value: str, form: Format) -> str:
    """The unit's f32 result rounded toward zero; beyond the range of f16 it is infinite all the same."""
    bits = unit(emitter, function, emitter.to_bits(widen(emitter, value, form), "float"))
    if form is BF16:
        return emitter.op("trunc i32 {} to i16", emitter.op("lshr i32 {}, 16", bits))
    number = emitter.to_float(bits, "float")
    half = round_float(emitter, number, F16)
    sizes = [emitter.intrinsic("llvm.fabs.f32", "float", f"float {x}") for x in (widen(emitter, half, F16), number)]
    larger = emitter.op("fcmp ogt float {}, {}", *sizes)
    inside = emitter.op("fcmp olt float {}, 65536.0", sizes[1])
    above = emitter.op("and i1 {}, {}", larger, inside)
    return emitter.select(above, "i16", emitter.op("sub i16 {}, 1", half), half)


@native("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64")
def upper_half(emitter: Emitter, instruction: Instruction) -> None:
    """1 / a or 1 / sqrt(a) of an f64 from its upper 32 bits, into the upper 32 bits; the others are zero."""
    bits = emitter.value(instruction.operands[1], 64)
    emitter.assign(instruction.operands[0], _from_upper_half(emitter, instruction.opcode, bits), 64)


def _from_upper_half(emitter: Emitter, function: str, bits: str) -> str:
    high = emitter.op("trunc i64 {} to i32", emitter.op("lshr i64 {}, 32", bits))
    build = lambda inner, word: _upper_word(inner, function, word)
    word = outlined(emitter, f"mufu.{function}64", "i32", [f"i32 {high}"], build)
    return emitter.op("shl i64 {}, 32", emitter.resize(word, 32, 64))


def _upper_word(emitter: Emitter, function: str, word: str) -> str:
    """The f32 function of the 20-bit mantissa at exponent 0 (or 1 for an odd root), moved to f64's exponent."""
    op = emitter.op
    exponent = op("sub i32 {}, 1023", op("and i32 {}, 2047", op("lshr i32 {}, 20", word)))
    mantissa = op("shl i32 {}, 3", op("and i32 {}, 1048575", word))
    odd = op("and i32 {}, 1", exponent) if function == "rsqrt" else "0"
    operand = op("or i32 {}, {}", mantissa, op("shl i32 {}, 23", op("add i32 {}, 127", odd)))
    near = op(f"add i32 {{}}, {1023 - 127 << 20}", op("lshr i32 {}, 3", unit(emitter, function, operand)))
    moved = exponent if function == "rcp" else op("ashr i32 {}, 1", exponent)
    value = op("sub i32 {}, {}", near, op("shl i32 {}, 20", moved))
    sign, magnitude = (op(f"and i32 {{}}, {mask}", word) for mask in (-(2**31), 2**31 - 1))
    tiny, zero = (op(f"icmp slt i32 {{}}, {1 << 20}", number) for number in (value, magnitude))
    infinite, nan = (op(f"icmp {c} i32 {{}}, {_HIGH_INFINITY}", magnitude) for c in ("eq", "ugt"))
    for condition, chosen in ((tiny, "0"), (infinite, "0"), (zero, str(_HIGH_INFINITY))):
        value = emitter.select(condition, "i32", chosen, value)
    if function == "rsqrt":
        below = op("and i1 {}, {}", op("icmp slt i32 {}, 0", word), op("xor i1 {}, true", zero))
        nan = op("or i1 {}, {}", nan, below)
    return emitter.select(nan, "i32", str(F32.nan), op("or i32 {}, {}", value, sign))


@native("rsqrt.approx.f64")
def reciprocal_root_of_double(emitter: Emitter, instruction: Instruction) -> None:
    """1 / sqrt(a): one step of Halley's iteration from the unit's upper half, subnormals scaled by 2^54."""
    bits = emitter.value(instruction.operands[1], 64)
    tiny = emitter.op(f"icmp ult i64 {{}}, {F64.least_normal}", magnitude_of(emitter, bits, F64))
    number = emitter.to_float(bits, "double")
    scaled = emitter.op(f"fmul double {{}}, {float_constant(2.0**54)}", number)
    number = emitter.select(tiny, "double", scaled, number)
    near = emitter.to_float(_from_upper_half(emitter, "rsqrt", emitter.to_bits(number, "double")), "double")
    negated = emitter.op("fneg double {}", emitter.op("fmul double {}, {}", near, near))
    error = _fused(emitter, number, negated, "1.0")
    factor = _fused(emitter, error, "0.375", "0.5")
    root = _fused(emitter, factor, emitter.op("fmul double {}, {}", near, error), near)
    back = emitter.op(f"fmul double {{}}, {float_constant(2.0**27)}", root)
    result = emitter.to_bits(emitter.select(tiny, "double", back, root), "double")
    emitter.assign(instruction.operands[0], _root_of_double_domain(emitter, bits, result), 64)


def _fused(emitter: Emitter, *numbers: str) -> str:
    return emitter.intrinsic("llvm.fma.f64", "double", *(f"double {number}" for number in numbers))


def _root_of_double_domain(emitter: Emitter, bits: str, result: str) -> str:
    op = emitter.op
    zero = op("icmp eq i64 {}, 0", magnitude_of(emitter, bits, F64))
    at_zero = op(f"or i64 {{}}, {F64.infinity}", op(f"and i64 {{}}, {F64.sign}", bits))
    cases = (
        (op(f"icmp eq i64 {{}}, {F64.infinity}", bits), "0"),
        (op("icmp slt i64 {}, 0", bits), str(F64_DEFAULT_NAN)),
        (zero, at_zero),
        (is_nan(emitter, bits, F64), op(f"or i64 {{}}, {F64_QUIET}", bits)),
    )
    for condition, value in cases:
        result = emitter.select(condition, "i64", value, result)
    return result

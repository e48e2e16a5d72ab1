"""`.approx` functions: what ptxas makes of each PTX form around the multi-function unit (MUFU), and the unit itself.

The unit takes and gives f32 with subnormals flushed; forms without `.ftz` scale their operand into the normal range and
the result back, as the machine code of sm_90 does.
"""

from __future__ import annotations

from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.native.formats import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    canonical,
    flush,
    narrow,
    outlined,
    to_double,
)
from cutesmith.emulator.native.forms import forms
from cutesmith.emulator.native.packed import part_format, parts
from cutesmith.emulator.operations.registry import native
from cutesmith.emulator.ptx.syntax import Instruction

_TINY, _HUGE = 0x00800000, 0x7E800000  # 2^-126, 2^126
_TURNS = 0x3E22F983  # 1 / (2 pi) as ptxas writes it: the unit measures angles in turns


@native(*forms("rcp.approx", ("", "ftz"), ("f32",)))
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


@native(*forms("sqrt.approx", ("", "ftz"), ("f32",)), *forms("rsqrt.approx", ("", "ftz"), ("f32",)))
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


@native(*forms("lg2.approx", ("", "ftz"), ("f32",)))
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


@native(*forms("ex2.approx", ("", "ftz"), ("f32",)))
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


@native(*forms("sin.approx", ("", "ftz"), ("f32",)), *forms("cos.approx", ("", "ftz"), ("f32",)))
def circular(emitter: Emitter, instruction: Instruction) -> None:
    """sin(a) or cos(a): a in turns, rounded toward zero, goes to the unit."""
    value = emitter.value(instruction.operands[1], 32)
    turns = emitter.op(f"fmul double {{}}, {_double(_TURNS)}", to_double(emitter, value, F32))
    bits = emitter.resize(narrow(emitter, turns, F32, "rz"), 64, 32)
    emitter.assign(instruction.operands[0], unit(emitter, instruction.opcode, bits), 32)


def _double(bits: int) -> str:
    """An f32 pattern as an LLVM double constant."""
    exponent, fraction = (bits >> 23) - F32.bias + F64.bias, bits & (1 << 23) - 1
    return f"0x{exponent << 52 | fraction << 29:016X}"


@native("tanh.approx.f32")
def hyperbolic_tangent(emitter: Emitter, instruction: Instruction) -> None:
    """tanh(a)."""
    value = emitter.value(instruction.operands[1], 32)
    emitter.assign(instruction.operands[0], unit(emitter, "tanh", value), 32)


@native(*forms("div", ("approx", "full"), ("", "ftz"), ("f32",)))
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
    above, number = (
        emitter.op(f"icmp {c} i32 {{}}, {v}", magnitude) for c, v in (("ugt", limit), ("ule", F32.infinity))
    )
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


# The unit -------------------------------------------------------------------------------------------------------------


def unit(emitter: Emitter, function: str, bits: str) -> str:
    """What the multi-function unit makes of an f32 pattern."""
    build = lambda inner, value: _exact(inner, function, value)
    return outlined(emitter, f"mufu.{function}", "i32", [f"i32 {bits}"], build)


def _exact(emitter: Emitter, function: str, value: str) -> str:
    """The correctly rounded function (but for errors of libm in double, 2^-29 of the unit's last place)."""
    value = flush(emitter, value, F32)
    number = to_double(emitter, value, F32)
    if function in ("sin", "cos"):
        number = emitter.op(f"fmul double {{}}, {_double(0x40C90FDB)}", number)
    result = _libm(emitter, function, number)
    return flush(emitter, emitter.resize(narrow(emitter, result, F32), 64, 32), F32)


def _libm(emitter: Emitter, function: str, number: str) -> str:
    if function == "rcp":
        return emitter.op("fdiv double 1.0, {}", number)
    if function == "rsqrt":
        return emitter.op("fdiv double 1.0, {}", _libm(emitter, "sqrt", number))
    if function == "tanh":
        return emitter.intrinsic("tanh", "double", f"double {number}")
    name = {"sqrt": "sqrt", "lg2": "log2", "ex2": "exp2", "sin": "sin", "cos": "cos"}[function]
    return emitter.intrinsic(f"llvm.{name}.f64", "double", f"double {number}")


# Narrow formats and f64 -----------------------------------------------------------------------------------------------


@native("ex2.approx.f16", "ex2.approx.ftz.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16")
def half_precision(emitter: Emitter, instruction: Instruction) -> None:
    """2^a or tanh(a) of an f16 or bf16."""
    form = FORMATS[instruction.modifiers[-1]]
    value = emitter.value(instruction.operands[1], 16)
    emitter.assign(instruction.operands[0], _half(emitter, instruction, form.name, value), 16)


@native("ex2.approx.f16x2", "ex2.approx.ftz.f16x2", "ex2.approx.ftz.bf16x2", "tanh.approx.f16x2", "tanh.approx.bf16x2")
def packed_half_precision(emitter: Emitter, instruction: Instruction) -> None:
    """2^a or tanh(a) of both halves."""
    form = part_format(instruction)
    halves = parts(emitter, instruction.operands[1], form)
    results = [_half(emitter, instruction, form.name, half) for half in halves]
    emitter.assign(instruction.operands[0], emitter.pack(results, 32), 32)


def _half(emitter: Emitter, instruction: Instruction, name: str, bits: str) -> str:
    form = FORMATS[name]
    flushes = "ftz" in instruction.modifiers
    build = lambda inner, value: _half_exact(inner, instruction.opcode, name, value, flushes)
    return outlined(emitter, f"{instruction.opcode}.{name}{'.ftz' * flushes}", f"i{form.bits}", [f"i16 {bits}"], build)


def _half_exact(emitter: Emitter, function: str, name: str, value: str, flushes: bool) -> str:
    form = F16 if name == "f16" else BF16
    if flushes:
        value = flush(emitter, value, form)
    result = narrow(emitter, _libm(emitter, function, to_double(emitter, value, form)), form)
    result = emitter.resize(result, 64, 16)
    return flush(emitter, result, form) if flushes else result


@native("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64")
def upper_half(emitter: Emitter, instruction: Instruction) -> None:
    """1 / a or 1 / sqrt(a) of an f64 from its upper 32 bits, into the upper 32 bits; the others are zero."""
    bits = emitter.op("and i64 {}, -4294967296", emitter.value(instruction.operands[1], 64))
    number = emitter.to_float(flush(emitter, bits, F64), "double")
    result = flush(emitter, canonical(emitter, _libm(emitter, instruction.opcode, number), "double", F64), F64)
    emitter.assign(instruction.operands[0], emitter.op("and i64 {}, -4294967296", result), 64)

"""Float arithmetic on bit patterns: f16, bf16, f32 and f64 with every rounding, `.ftz`, `.sat`, `.relu`; comparisons.

`float_instructions.py` applies it to registers and their parts. An f16 or bf16 sum or
product is computed in float, whose 24 bits make the second rounding harmless (Figueroa 1995: 24 >= 2 * 11 + 2); a fused
multiply-add is an exact product plus an addition rounded to odd, then rounded once.
"""

from __future__ import annotations

from cutesmith.emulator.emitters.formats import (
    F16,
    F32,
    F64,
    ROUNDINGS,
    Format,
    canonical,
    float_constant,
    flush,
    is_nan,
    magnitude_of,
    outlined,
    round_float,
    to_double,
    widen,
)
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Instruction

COMPARISONS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord", "nan": "uno",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
}  # fmt: skip
"""LLVM's predicate of each comparison."""
_INSTRUCTIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
F64_QUIET = 1 << 51
OUT_OF_BOUNDS = 0x7FF7  # found by trying all 2^16 patterns on an H200; the same for f16 and bf16
F64_DEFAULT_NAN = 0xFFF8 << 48
_NAN_ORDER = {"div": (1, 0), "fma": (0, 2, 1), "mad": (0, 2, 1)}  # of f64 operands: the last NaN wins, as on an H200
_LLVM_ROUNDING = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}


def apply(emitter: Emitter, instruction: Instruction, form: Format, values: list[str]) -> str:
    """The pattern that an instruction computes from patterns, modifiers obeyed."""
    words = instruction.modifiers
    if "ftz" in words:
        values = [flush(emitter, value, form) for value in values]
    result = _result(emitter, instruction, form, values)
    if "oob" in words:  # 0 where a factor is the NaN, of either sign, with which bulk copies fill what is out of bounds
        sizes = (magnitude_of(emitter, factor, form) for factor in values[:2])
        outside = [emitter.op(f"icmp eq i16 {{}}, {OUT_OF_BOUNDS}", size) for size in sizes]
        result = emitter.select(emitter.op("or i1 {}, {}", *outside), "i16", "0", result)
    if "ftz" in words:
        mode = _mode(instruction)
        if form is F32 and instruction.opcode in ("mul", "fma", "mad") and mode != "rz":
            result = _flushed_after_rounding(emitter, instruction.opcode, mode, values, result)
        result = flush(emitter, result, form)
    if "sat" in words:
        result = saturate(emitter, result, form)
    return relu(emitter, result, form) if "relu" in words else result


def _result(emitter: Emitter, instruction: Instruction, form: Format, values: list[str]) -> str:
    opcode, words = instruction.opcode, instruction.modifiers
    if opcode in ("min", "max"):
        result = values[0]
        for value in values[1:]:  # three operands on sm_100
            result = extremum(
                emitter, opcode, form, [result, value], keeps_nan="NaN" in words, signs="xorsign" in words
            )
        return result
    if opcode in ("abs", "neg"):
        value = values[0]
        negated = emitter.op(f"xor i{form.bits} {{}}, {form.sign}", value) if opcode == "neg" else ""
        changed = negated or magnitude_of(emitter, value, form)
        nan = emitter.op(f"or i64 {{}}, {F64_QUIET}", value) if form is F64 else str(form.nan)
        return emitter.select(is_nan(emitter, value, form), f"i{form.bits}", nan, changed)
    if form.bits == 16:
        return _half_precision(emitter, opcode, form, values, flushes="ftz" in words)
    return compute(emitter, opcode, form, _mode(instruction), values)


def _mode(instruction: Instruction) -> str:
    return next((word for word in instruction.modifiers if word in ROUNDINGS), "rn")


def compute(emitter: Emitter, opcode: str, form: Format, mode: str, values: list[str]) -> str:
    """Add, sub, mul, div, fma, rcp or sqrt of f32 or f64 patterns, correctly rounded."""
    if opcode == "rcp":
        return compute(emitter, "div", form, mode, [str(form.bias << form.mantissa), *values])
    kind = form.llvm
    numbers = [emitter.to_float(value, kind) for value in values]
    exact = _operation(emitter, opcode, kind, mode, numbers)
    if form is F64:
        return _double_or_nan(emitter, exact, [values[place] for place in _NAN_ORDER.get(opcode, range(len(values)))])
    return canonical(emitter, exact, kind, form)


def _double_or_nan(emitter: Emitter, value: str, values: list[str]) -> str:
    """A double's pattern; a NaN is the last operand that is one, quiet (H200), else the default NaN."""
    nan = str(F64_DEFAULT_NAN)
    for operand in values:
        quiet = emitter.op(f"or i64 {{}}, {F64_QUIET}", operand)
        nan = emitter.select(is_nan(emitter, operand, F64), "i64", quiet, nan)
    is_number = emitter.op("fcmp ord double {}, 0.0", value)
    return emitter.select(is_number, "i64", emitter.to_bits(value, "double"), nan)


def _operation(emitter: Emitter, opcode: str, kind: str, mode: str, numbers: list[str]) -> str:
    if mode == "rn":
        return _nearest(emitter, opcode, kind, numbers)
    return _directed(emitter, opcode, kind, mode, numbers)


def _nearest(emitter: Emitter, opcode: str, kind: str, numbers: list[str]) -> str:
    if opcode in _INSTRUCTIONS:
        return emitter.op(f"{_INSTRUCTIONS[opcode]} {kind} {{}}, {{}}", *numbers)
    name = {"fma": "fma", "mad": "fma", "sqrt": "sqrt"}[opcode]
    return emitter.intrinsic(f"llvm.{name}.{_suffix(kind)}", kind, *(f"{kind} {number}" for number in numbers))


def _suffix(kind: str) -> str:
    return {"float": "f32", "double": "f64"}[kind]


def _directed(emitter: Emitter, opcode: str, kind: str, mode: str, numbers: list[str]) -> str:
    """The operation by the processor itself, in another rounding mode for its time."""
    operation = {"mad": "fma"}.get(opcode) or _INSTRUCTIONS.get(opcode, opcode)
    name = f"{operation}.{_suffix(kind)}.{mode}"
    emitter.module.declarations["llvm.set.rounding"] = "declare void @llvm.set.rounding(i32)"
    intrinsic = f"llvm.experimental.constrained.{operation}.{_suffix(kind)}"
    types = ", ".join([kind] * len(numbers))
    emitter.module.declarations[intrinsic] = f"declare {kind} @{intrinsic}({types}, metadata, metadata)"
    arguments = ", ".join(f"{kind} %p{place}" for place in range(len(numbers)))
    text = f"""define internal {kind} @{name}({arguments}) noinline nounwind strictfp {{
call void @llvm.set.rounding(i32 {_LLVM_ROUNDING[mode]}) strictfp
%r = call {kind} @{intrinsic}({arguments}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp
call void @llvm.set.rounding(i32 1) strictfp
ret {kind} %r
}}"""
    return emitter.helper(name, text, kind, *(f"{kind} {number}" for number in numbers))


def _half_precision(emitter: Emitter, opcode: str, form: Format, values: list[str], *, flushes: bool) -> str:
    if opcode == "fma":
        arguments = [f"i16 {value}" for value in values]
        build = lambda inner, *bits: _rounded_half(inner, _fused(inner, form, bits), form, flushes)
        return outlined(emitter, f"fma.{form.name}{'.ftz' * flushes}", "i16", arguments, build, inline=True)
    value = _nearest(emitter, opcode, "float", [widen(emitter, bits, form) for bits in values])
    return _rounded_half(emitter, value, form, flushes)


def _rounded_half(emitter: Emitter, value: str, form: Format, flushes: bool) -> str:
    """A float, exact or rounded to odd, as f16 or bf16; `flushes`: zero where it is tiny after rounding (f16)."""
    rounded = round_float(emitter, value, form)
    if not flushes:
        return rounded
    magnitude = emitter.intrinsic("llvm.fabs.f32", "float", f"float {value}")
    tiny = emitter.op(f"fcmp olt float {{}}, {float_constant(2.0**-14 - 2.0**-26)}", magnitude)
    return emitter.select(tiny, "i16", emitter.op(f"and i16 {{}}, {form.sign}", rounded), rounded)


def _fused(emitter: Emitter, form: Format, values: tuple[str, ...]) -> str:
    """The fused multiply-add of two narrow formats as a float, rounded to odd.

    A float holds every product of f16 (22 bits, 2^-48 to 2^32); the exponents of bf16 products need a double.
    """
    if form is F16:
        a, b, c = (widen(emitter, value, form) for value in values)
        return _sum_to_odd(emitter, "float", emitter.op("fmul float {}, {}", a, b), c)
    a, b, c = (to_double(emitter, value, form) for value in values)
    return double_to_odd_float(emitter, _sum_to_odd(emitter, "double", emitter.op("fmul double {}, {}", a, b), c))


def _sum_to_odd(emitter: Emitter, kind: str, a: str, b: str) -> str:
    """a + b rounded to odd: the even neighbour of an inexact sum is replaced by the odd one (Boldo, Melquiond 2008).

    The terms come from narrow formats: no overflow, and the error (Knuth's TwoSum) is exact.
    """
    op, integer = emitter.op, {"float": "i32", "double": "i64"}[kind]
    total = op(f"fadd {kind} {{}}, {{}}", a, b)
    part = op(f"fsub {kind} {{}}, {{}}", total, a)
    lost_of_a = op(f"fsub {kind} {{}}, {{}}", a, op(f"fsub {kind} {{}}, {{}}", total, part))
    error = op(f"fadd {kind} {{}}, {{}}", lost_of_a, op(f"fsub {kind} {{}}, {{}}", b, part))
    inexact = op(f"fcmp one {kind} {{}}, 0.0", error)  # false for the NaN that infinities leave
    bits = emitter.to_bits(total, kind)
    outward = op("xor i1 {}, {}", op(f"fcmp ogt {kind} {{}}, 0.0", error), op(f"icmp slt {integer} {{}}, 0", bits))
    step = emitter.select(outward, integer, "1", "-1")
    even = op("xor i1 {}, true", op(f"trunc {integer} {{}} to i1", bits))
    wanted = op("and i1 {}, {}", inexact, even)
    odd = emitter.select(wanted, integer, op(f"add {integer} {{}}, {{}}", bits, step), bits)
    return emitter.to_float(odd, kind)


def double_to_odd_float(emitter: Emitter, value: str) -> str:
    """A double as float, rounded to odd, so that a second rounding to at most 22 bits is right."""
    op = emitter.op
    near = op("fptrunc double {} to float", value)
    back = op("fpext float {} to double", near)
    bits = emitter.to_bits(near, "float")
    magnitudes = [emitter.intrinsic("llvm.fabs.f64", "double", f"double {x}") for x in (back, value)]
    larger = op("fcmp ogt double {}, {}", *magnitudes)
    below = emitter.select(larger, "i32", op("sub i32 {}, 1", bits), bits)
    inexact = op("fcmp one double {}, {}", back, value)
    odd = emitter.select(inexact, "i32", op("or i32 {}, 1", below), bits)
    return emitter.to_float(odd, "float")


def _flushed_after_rounding(emitter: Emitter, opcode: str, mode: str, values: list[str], result: str) -> str:
    """The f32 result, zero of its sign where it is the least normal number only because subnormals are coarser.

    The hardware flushes what would be tiny if the exponent had no lower limit (IEEE 754: tininess after rounding). That
    is asked of the same operation 2^24 higher, in a block of its own, for it rarely matters.
    """
    name = f"flushed.{opcode}.{mode}"
    inner = Emitter(emitter.program, emitter.module)
    numbers = [f"%n{place}" for place in range(len(values))]
    scaled = [
        number if place == 1 else inner.op("fmul float {}, 16777216.0", number) for place, number in enumerate(numbers)
    ]
    higher = _operation(inner, opcode, "float", mode, scaled)
    casts = [f"{number} = bitcast i32 %p{place} to float" for place, number in enumerate(numbers)]
    parameters = ", ".join(f"i32 %p{place}" for place in range(len(values)))
    text = f"""define internal i32 @{name}(i32 %result, {parameters}) alwaysinline nounwind {{
begin:
%magnitude = and i32 %result, {F32.sign - 1}
%edge = icmp eq i32 %magnitude, {F32.least_normal}
br i1 %edge, label %rare, label %done, !prof !1
rare:
{chr(10).join((*casts, *inner.lines))}
%bits = bitcast float {higher} to i32
%large = and i32 %bits, {F32.sign - 1}
%tiny = icmp ult i32 %large, {F32.least_normal + (24 << F32.mantissa)}
%zero = and i32 %result, {F32.sign}
%chosen = select i1 %tiny, i32 %zero, i32 %result
br label %done
done:
%kept = phi i32 [%result, %begin], [%chosen, %rare]
ret i32 %kept
}}"""
    return emitter.helper(name, text, "i32", *(f"i32 {value}" for value in (result, *values)))


def saturate(emitter: Emitter, bits: str, form: Format) -> str:
    """Clamped to [0, 1]; NaN and negative zero give +0."""
    kind, one = f"i{form.bits}", str(form.bias << form.mantissa)
    value = widen(emitter, bits, form)
    positive = emitter.op(f"fcmp ogt {_computed_in(form)} {{}}, 0.0", value)
    above = emitter.op(f"fcmp ogt {_computed_in(form)} {{}}, 1.0", value)
    return emitter.select(positive, kind, emitter.select(above, kind, one, bits), "0")


def relu(emitter: Emitter, bits: str, form: Format) -> str:
    """+0 for a negative number or negative zero; NaN stays."""
    kind = f"i{form.bits}"
    negative = emitter.op(f"icmp slt {kind} {{}}, 0", bits)
    number = emitter.op("xor i1 {}, true", is_nan(emitter, bits, form))
    return emitter.select(emitter.op("and i1 {}, {}", negative, number), kind, "0", bits)


def _computed_in(form: Format) -> str:
    return "double" if form is F64 else "float"


def extremum(
    emitter: Emitter, opcode: str, form: Format, values: list[str], *, keeps_nan: bool = False, signs: bool = False
) -> str:
    """Min or max: a number beats a NaN unless `keeps_nan`, -0 is less than +0; `signs`: of |a|, |b|, sign a xor b."""
    kind, op = f"i{form.bits}", emitter.op
    sign = op(f"and {kind} {{}}, {form.sign}", op(f"xor {kind} {{}}, {{}}", *values)) if signs else ""
    a, b = [magnitude_of(emitter, value, form) for value in values] if signs else values
    numbers = [widen(emitter, value, form) for value in (a, b)]
    before = op(f"fcmp {'olt' if opcode == 'min' else 'ogt'} {_computed_in(form)} {{}}, {{}}", *numbers)
    equal = op(f"fcmp oeq {_computed_in(form)} {{}}, {{}}", *numbers)
    first = op(f"icmp {'slt' if opcode == 'min' else 'sge'} {kind} {{}}, 0", a)  # of two zeros
    nans = [is_nan(emitter, value, form) for value in (a, b)]
    takes_a = op("or i1 {}, {}", op("or i1 {}, {}", before, op("and i1 {}, {}", equal, first)), nans[1])
    chosen = emitter.select(takes_a, kind, a, b)
    if signs:
        chosen = op(f"or {kind} {{}}, {{}}", chosen, sign)
    no_number = op(f"{'or' if keeps_nan else 'and'} i1 {{}}, {{}}", *nans)
    nan = op(f"or i64 {{}}, {F64_QUIET}", b) if form is F64 else str(form.nan)
    return emitter.select(no_number, kind, nan, chosen)


def compare(emitter: Emitter, instruction: Instruction, form: Format, values: list[str]) -> str:
    """Whether the comparison named by the first modifier holds (i1)."""
    if "ftz" in instruction.modifiers:
        values = [flush(emitter, value, form) for value in values]
    numbers = [widen(emitter, value, form) for value in values]
    return emitter.op(f"fcmp {COMPARISONS[instruction.modifiers[0]]} {_computed_in(form)} {{}}, {{}}", *numbers)

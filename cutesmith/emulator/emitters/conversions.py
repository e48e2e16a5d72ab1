"""`cvt` between every pair of types: integers, f16, bf16, f32, f64, tf32, and packed f16x2, bf16x2, e4m3x2, e5m2x2."""

from __future__ import annotations

from typing import NamedTuple

from cutesmith.emulator.emitters.floats import relu, saturate
from cutesmith.emulator.emitters.formats import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    ROUNDINGS,
    TF32,
    Format,
    flush,
    is_nan,
    magnitude_of,
    narrow,
    outlined,
    round_float,
    to_double,
    widen,
)
from cutesmith.emulator.instructions.forms import IntegerType, integer_type
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Instruction, Operand

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_FLAGS = ("ftz", "sat", "relu", "satfinite")
_SCALARS = ("f16", "bf16", "f32", "f64")
_PAIRS = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2", "e2m1x2")


class Modifiers(NamedTuple):
    """How a `cvt` rounds ("" where nothing is said), and its flags."""

    rounding: str
    flags: frozenset[str]


@native("cvt")
def convert(emitter: Emitter, instruction: Instruction) -> None:
    """`cvt.rounding.flags.dtype.stype d, a` (or `d, a, b` for a packed destination)."""
    *words, target, source = instruction.modifiers
    roundings = [word for word in words if word in (*ROUNDINGS, *_INTEGRAL, "rna")]
    flags = frozenset(words) - set(roundings)
    if strange := sorted(flags - set(_FLAGS)):
        raise emitter.unsupported(f".{strange[0]}")
    if len(roundings) > 1:
        raise emitter.unsupported("two roundings")
    modifiers = Modifiers(roundings[0] if roundings else "", flags)
    destination, *operands = instruction.operands
    if target in _PAIRS:
        form, origin = FORMATS[target[:-2]], FORMATS.get(source.removesuffix("x2"))
        if origin is None or modifiers.rounding not in ("rn", "rz") or modifiers.flags - {"relu", "satfinite"}:
            raise emitter.unsupported()
        values = _pair_values(emitter, operands, source, origin)
        results = [_part(emitter, value, form, origin, modifiers) for value in values]
        emitter.assign(destination, emitter.pack(results, 2 * form.bits), 2 * form.bits)
    elif target == "tf32":
        _to_tf32(emitter, destination, operands[0], source, modifiers)
    elif target in _SCALARS and source in _SCALARS:
        _float_to_float(emitter, destination, operands[0], FORMATS[target], FORMATS[source], modifiers)
    elif target in _SCALARS:
        _integer_to_float(
            emitter, destination, operands[0], FORMATS[target], integer_type(instruction, source), modifiers
        )
    elif source in _SCALARS:
        _float_to_integer(
            emitter, destination, operands[0], integer_type(instruction, target), FORMATS[source], modifiers
        )
    else:
        types = integer_type(instruction, target), integer_type(instruction, source)
        _integer_to_integer(emitter, destination, operands[0], *types, modifiers)


# Integers -------------------------------------------------------------------------------------------------------------


def _integer_to_integer(
    emitter: Emitter, destination: Operand, operand: Operand, target: IntegerType, source: IntegerType, how: Modifiers
) -> None:
    if how.rounding or how.flags - {"sat"}:
        raise emitter.unsupported("a rounding between integers")
    value = emitter.value(operand, source.bits)
    if "sat" in how.flags:
        wide = emitter.resize(value, source.bits, 128, signed=source.signed)
        value = emitter.op("trunc i128 {} to i64", clamp(emitter, wide, 128, target))
        emitter.assign(destination, emitter.resize(value, 64, target.bits), target.bits, signed=target.signed)
        return
    value = emitter.resize(value, source.bits, target.bits, signed=source.signed)
    emitter.assign(destination, value, target.bits, signed=target.signed)


def clamp(emitter: Emitter, value: str, bits: int, target: IntegerType) -> str:
    """A signed i<bits> limited to the range of a narrower integer type."""
    low = -(1 << target.bits - 1) if target.signed else 0
    high = (1 << target.bits - target.signed) - 1
    for name, limit in (("smax", low), ("smin", high)):
        value = emitter.intrinsic(f"llvm.{name}.i{bits}", f"i{bits}", f"i{bits} {value}", f"i{bits} {limit}")
    return value


@native("cvt.pack.sat.{u16,s16}.s32", "cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32")
def convert_pack(emitter: Emitter, instruction: Instruction) -> None:
    """`cvt.pack.sat.dtype.s32{.b32} d, a, b{, c}`: b lowest, a next, both saturated; above them the low part of c."""
    name = instruction.modifiers[2]
    target = IntegerType(int(name[1:]), name[0] == "s")
    destination, a, b, *c = instruction.operands
    fields = []
    for operand in (b, a):
        limited = clamp(emitter, emitter.value(operand, 32), 32, target)
        fields.append(emitter.op(f"and i32 {{}}, {(1 << target.bits) - 1}", limited))
    packed = emitter.op("or i32 {}, {}", fields[0], emitter.op(f"shl i32 {{}}, {target.bits}", fields[1]))
    if c:
        rest = emitter.op(f"shl i32 {{}}, {2 * target.bits}", emitter.value(c[0], 32))
        packed = emitter.op("or i32 {}, {}", packed, rest)
    emitter.assign(destination, packed, 32)


# Integer and float ----------------------------------------------------------------------------------------------------


def _integer_to_float(
    emitter: Emitter, destination: Operand, operand: Operand, target: Format, source: IntegerType, how: Modifiers
) -> None:
    if how.rounding not in ROUNDINGS or how.flags - {"sat"}:
        raise emitter.unsupported()
    value = emitter.value(operand, source.bits)
    if source.bits < 64:
        exact = emitter.op(f"{'si' if source.signed else 'ui'}tofp i{source.bits} {{}} to double", value)
        bits = round_double(emitter, exact, target, how.rounding)
    elif target is F64:
        bits = _long_to_double(emitter, value, source, how.rounding)
    else:
        bits = round_double(emitter, _long_to_odd_double(emitter, value, source), target, how.rounding)
    if "sat" in how.flags:
        bits = saturate(emitter, bits, target)
    emitter.assign(destination, bits, target.bits)


def round_double(emitter: Emitter, value: str, target: Format, mode: str) -> str:
    """A double rounded once to f16, bf16, f32 (or kept, for f64), as a pattern of that width."""
    if target is F64:
        return emitter.to_bits(value, "double")
    if target is F32 and mode == "rn":
        return round_float(emitter, emitter.op("fptrunc double {} to float", value), F32)
    return emitter.resize(narrow(emitter, value, target, mode), 64, target.bits)


def _long_to_odd_double(emitter: Emitter, value: str, source: IntegerType) -> str:
    """A 64-bit integer as a double whose last bit says whether bits below it are lost: exact enough for 51 bits."""
    low = emitter.op("and i64 {}, 2047", value)
    high = emitter.op(f"{'ashr' if source.signed else 'lshr'} i64 {{}}, 11", value)
    sticky = emitter.op("zext i1 {} to i64", emitter.op("icmp ne i64 {}, 0", low))
    large = emitter.op("sitofp i64 {} to double", emitter.op("or i64 {}, {}", high, sticky))
    large = emitter.op("fmul double {}, 2048.0", large)
    small = emitter.op("sitofp i64 {} to double", value)
    magnitude = emitter.intrinsic("llvm.abs.i64", "i64", f"i64 {value}", "i1 false") if source.signed else value
    exact = emitter.op(f"icmp ult i64 {{}}, {1 << 53}", magnitude)
    return emitter.select(exact, "double", small, large)


def _long_to_double(emitter: Emitter, value: str, source: IntegerType, mode: str) -> str:
    """A 64-bit integer as the pattern of a double in any rounding mode: the nearest one, then one step where needed."""
    name = f"double.from.{source.letter}64.{mode}"
    build = lambda inner, argument: _long_to_double_body(inner, argument, source, mode)
    return outlined(emitter, name, "i64", [f"i64 {value}"], build)


def _long_to_double_body(emitter: Emitter, value: str, source: IntegerType, mode: str) -> str:
    op = emitter.op
    negative = op("icmp slt i64 {}, 0", value) if source.signed else "false"
    magnitude = emitter.select(negative, "i64", op("sub i64 0, {}", value), value)
    near = op("uitofp i64 {} to double", magnitude)
    back = emitter.intrinsic("llvm.fptoui.sat.i64.f64", "i64", f"double {near}")
    beyond = op(f"fcmp oge double {{}}, {float(2**64)}", near)
    above = op("or i1 {}, {}", beyond, op("icmp ugt i64 {}, {}", back, magnitude))
    below = op("icmp ult i64 {}, {}", back, magnitude)
    away = {"rn": "false", "rz": "false", "rm": negative, "rp": op("xor i1 {}, true", negative)}[mode]
    step = emitter.select(away, "i64", op("zext i1 {} to i64", below), op("sext i1 {} to i64", above))
    bits = op("add i64 {}, {}", emitter.to_bits(near, "double"), "0" if mode == "rn" else step)
    return op("or i64 {}, {}", bits, emitter.select(negative, "i64", str(F64.sign), "0"))


def _float_to_integer(
    emitter: Emitter, destination: Operand, operand: Operand, target: IntegerType, source: Format, how: Modifiers
) -> None:
    if how.rounding not in _INTEGRAL or how.flags - {"sat", "ftz"}:
        raise emitter.unsupported()
    bits = emitter.value(operand, source.bits)
    if "ftz" in how.flags:
        bits = flush(emitter, bits, source)
    number = to_double(emitter, bits, source)
    whole = emitter.intrinsic(f"llvm.{_INTEGRAL[how.rounding]}.f64", "double", f"double {number}")
    name = f"llvm.fpto{target.letter}i.sat.i{target.bits}.f64"
    value = emitter.intrinsic(name, f"i{target.bits}", f"double {whole}")
    if target.bits == 64 or source is F64:  # a NaN gives 0 elsewhere (H200)
        nan = emitter.op("fcmp uno double {}, 0.0", number)
        value = emitter.select(nan, f"i{target.bits}", str(-(1 << target.bits - 1)), value)
    emitter.assign(destination, value, target.bits, signed=target.signed)


# Floats ---------------------------------------------------------------------------------------------------------------


def _float_to_float(
    emitter: Emitter, destination: Operand, operand: Operand, target: Format, source: Format, how: Modifiers
) -> None:
    bits = emitter.value(operand, source.bits)
    flushes = "ftz" in how.flags and target is not F16  # to f16 the H200 flushes nothing
    if flushes and source is F32:
        bits = _canonical_flushed(emitter, bits)
    elif flushes and source is F64:
        bits = _flushed_to_float(emitter, bits, how.rounding or "rn")
    if how.rounding in _INTEGRAL:
        if target is not source:
            raise emitter.unsupported("an integral rounding between formats")
        kind, suffix = ("double", "f64") if source is F64 else ("float", "f32")
        wide = f"{kind} {widen(emitter, bits, source)}"
        whole = emitter.intrinsic(f"llvm.{_INTEGRAL[how.rounding]}.{suffix}", kind, wide)
        bits = round_double(emitter, whole, F64, "rn") if source is F64 else round_float(emitter, whole, source)
    elif flushes and source is BF16:
        bits = _canonical_flushed(emitter, float_bits(emitter, bits, target, source, how))
    else:
        bits = float_bits(emitter, bits, target, source, how)
    if "sat" in how.flags:
        bits = saturate(emitter, bits, target)
    if "relu" in how.flags:
        bits = relu(emitter, bits, target)
    emitter.assign(destination, bits, target.bits)


def _canonical_flushed(emitter: Emitter, bits: str) -> str:
    return emitter.select(is_nan(emitter, bits, F32), "i32", str(F32.nan), flush(emitter, bits, F32))


def _flushed_to_float(emitter: Emitter, bits: str, mode: str) -> str:
    """A double that is tiny for f32 as zero of its sign: below 2^-126 once it is rounded to 24 bits in this mode."""
    op, least = emitter.op, (F64.bias - 126) << 52
    unit = 1 << 52 - F32.mantissa  # of a 24-bit significand just below 2^-126, in the pattern of a double
    negative = op("icmp slt i64 {}, 0", bits)
    toward, away = str(least), str(least - unit + 1)
    limit = {
        "rn": str(least - unit // 2),
        "rz": toward,
        "rm": emitter.select(negative, "i64", away, toward),
        "rp": emitter.select(negative, "i64", toward, away),
    }[mode]
    tiny = op("icmp ult i64 {}, {}", magnitude_of(emitter, bits, F64), limit)
    return emitter.select(tiny, "i64", op(f"and i64 {{}}, {F64.sign}", bits), bits)


def float_bits(emitter: Emitter, bits: str, target: Format, source: Format, how: Modifiers) -> str:
    """A pattern of one format as the nearest (or as `how` rounds) pattern of another."""
    mode = how.rounding or "rn"
    if "satfinite" in how.flags:
        value = narrow(emitter, to_double(emitter, bits, source), target, mode, finite=True)
        return emitter.resize(value, 64, target.bits)
    if target is source:
        return bits
    if target.mantissa >= source.mantissa and target.exponent_bits >= source.exponent_bits:
        # exact; NaN payloads survive where the H200 only moves bits (bf16 to f32) or widens to f64
        if target is F64:
            return emitter.to_bits(to_double(emitter, bits, source), "double")
        if source is BF16:
            return emitter.to_bits(widen(emitter, bits, source), "float")
        return round_float(emitter, widen(emitter, bits, source), target)
    if source is F64:  # a NaN keeps its sign and the upper bits of its payload, and is quiet
        op = emitter.op
        rounded = round_double(emitter, emitter.to_float(bits, "double"), target, mode)
        sign = op(f"and i64 {{}}, {target.sign}", op(f"lshr i64 {{}}, {64 - target.bits}", bits))
        payload = op(f"and i64 {{}}, {target.least_normal - 1}", op(f"lshr i64 {{}}, {52 - target.mantissa}", bits))
        nan = op(f"or i64 {{}}, {target.infinity | target.least_normal >> 1}", op("or i64 {}, {}", sign, payload))
        kind = f"i{target.bits}"
        return emitter.select(is_nan(emitter, bits, F64), kind, emitter.resize(nan, 64, target.bits), rounded)
    if mode == "rn" and source is not F64:
        return round_float(emitter, widen(emitter, bits, source), target)
    return round_double(emitter, to_double(emitter, bits, source), target, mode)


def _to_tf32(emitter: Emitter, destination: Operand, operand: Operand, source: str, how: Modifiers) -> None:
    """f32 with a 10-bit mantissa, in the upper 19 bits of a register."""
    if source != "f32" or how.rounding not in ("rna", "rn", "rz") or how.flags - {"relu", "satfinite"}:
        raise emitter.unsupported()
    bits = emitter.value(operand, 32)
    if how.rounding == "rna":
        value = _nearest_tf32(emitter, bits, finite="satfinite" in how.flags)
    else:
        number = narrow(emitter, to_double(emitter, bits, F32), TF32, how.rounding, finite="satfinite" in how.flags)
        value = emitter.op("shl i32 {}, 13", emitter.resize(number, 64, 32))
    emitter.assign(destination, relu(emitter, value, F32) if "relu" in how.flags else value, 32)


def _nearest_tf32(emitter: Emitter, bits: str, finite: bool) -> str:
    """Ties away: half a unit is added to the pattern of a finite number. `finite`: one step back from infinity, and,
    as the H200 does it, from any NaN."""
    op = emitter.op
    raised = emitter.select(_no_number(emitter, bits), "i32", bits, op("add i32 {}, 4096", bits))
    value = op("and i32 {}, -8192", raised)
    if not finite:
        return value
    return emitter.select(_no_number(emitter, value), "i32", op("sub i32 {}, 8192", value), value)


def _no_number(emitter: Emitter, bits: str) -> str:
    """Whether an f32 pattern is infinity or NaN (i1)."""
    return emitter.op(f"icmp uge i32 {{}}, {F32.infinity}", magnitude_of(emitter, bits, F32))


# Pairs ----------------------------------------------------------------------------------------------------------------


def _pair_values(emitter: Emitter, operands: list[Operand], source: str, origin: Format) -> list[str]:
    """Patterns of the two sources, the one for the low half first: two f32 operands (b, a) or one packed operand."""
    if source == "f32" and len(operands) == 2:
        return [emitter.value(operand, 32) for operand in reversed(operands)]
    if not source.endswith("x2") or len(operands) != 1:
        raise emitter.unsupported()
    return emitter.unpack(emitter.value(operands[0], 2 * origin.bits), 2 * origin.bits, origin.bits)


def _part(emitter: Emitter, bits: str, form: Format, origin: Format, how: Modifiers) -> str:
    if origin.bits < 8:
        value = _four_bits_to_half(emitter, bits)
    elif origin.bits < 16:
        value = eight_bits_to_half(emitter, bits, origin)
    elif form.bits < 16:
        number = to_double(emitter, bits, origin)
        value = emitter.resize(narrow(emitter, number, form, how.rounding, finite=True), 64, form.bits)
    else:
        value = float_bits(emitter, bits, form, origin, how)
    return relu(emitter, value, form) if "relu" in how.flags else value


def _four_bits_to_half(emitter: Emitter, bits: str) -> str:
    """An e2m1 pattern (i4) as f16, exact: moved under f16's exponent it is 2^14 times too small."""
    wide = emitter.resize(bits, 4, 16)
    magnitude = emitter.op("shl i16 {}, 9", emitter.op("and i16 {}, 7", wide))
    scaled = emitter.op("fmul float {}, 16384.0", widen(emitter, magnitude, F16))
    half = emitter.to_bits(emitter.op("fptrunc float {} to half", scaled), "half")
    return emitter.op("or i16 {}, {}", half, emitter.op("and i16 {}, -32768", emitter.op("shl i16 {}, 12", wide)))


def eight_bits_to_half(emitter: Emitter, bits: str, source: Format) -> str:
    """An e4m3 or e5m2 pattern (i8) as f16: exact; e5m2 is the upper byte of an f16."""
    high = emitter.op("shl i16 {}, 8", emitter.resize(bits, 8, 16))
    if source.name == "e5m2":
        return emitter.select(is_nan(emitter, high, F16), "i16", str(F16.nan), high)
    # e4m3 moved under f16's exponent has the wrong bias (8 too small): a product with 2^8 repairs it, subnormals too.
    magnitude = emitter.op("and i16 {}, 16256", emitter.op("lshr i16 {}, 1", high))
    scaled = emitter.op("fmul float {}, 256.0", widen(emitter, magnitude, F16))
    half = emitter.to_bits(emitter.op("fptrunc float {} to half", scaled), "half")
    signed = emitter.op("or i16 {}, {}", half, emitter.op("and i16 {}, -32768", high))
    nan = emitter.op("icmp eq i8 {}, 127", emitter.op("and i8 {}, 127", bits))
    return emitter.select(nan, "i16", str(F16.nan), signed)

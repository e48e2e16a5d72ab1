"""Floating-point formats as bit patterns, and rounding between them, as LLVM IR.

Values travel as integers of the format's width. Narrow formats are computed in a wider one from which a single rounding
leads back; `narrow` does that rounding for every format and mode from the bits of a double.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from cutesmith.emulator.native.emitter import Emitter


class Format(NamedTuple):
    """A float format: stored bits, mantissa bits, the NaN that results have, the largest finite pattern."""

    name: str
    bits: int
    mantissa: int
    nan: int
    largest: int
    llvm: str = ""

    @property
    def sign(self) -> int:
        """The pattern of the sign bit."""
        return 1 << self.bits - 1

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent."""
        return self.bits - 1 - self.mantissa

    @property
    def bias(self) -> int:
        """The exponent of 1.0 as stored."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def least_normal(self) -> int:
        """The pattern of the smallest normal number."""
        return 1 << self.mantissa

    @property
    def has_infinity(self) -> bool:
        """Whether numbers beyond the largest are infinite; e4m3 and e2m1 have no infinity."""
        return self.largest + 1 == ((1 << self.exponent_bits) - 1) << self.mantissa

    @property
    def infinity(self) -> int:
        """The pattern of infinity."""
        return self.largest + 1


F16 = Format("f16", 16, 10, 0x7FFF, 0x7BFF, "half")
BF16 = Format("bf16", 16, 7, 0x7FFF, 0x7F7F)
F32 = Format("f32", 32, 23, 0x7FFFFFFF, 0x7F7FFFFF, "float")
F64 = Format("f64", 64, 52, 0x7FF8 << 48, 0x7FEF_FFFF_FFFF_FFFF, "double")
TF32 = Format("tf32", 19, 10, 0x7FFFFFFF >> 13, 0x7F7FFFFF >> 13)
E4M3 = Format("e4m3", 8, 3, 0x7F, 0x7E)
E5M2 = Format("e5m2", 8, 2, 0x7F, 0x7B)
E2M1 = Format("e2m1", 4, 1, 0x7, 0x7)
FORMATS = {one.name: one for one in (F16, BF16, F32, F64, TF32, E4M3, E5M2, E2M1)}
ROUNDINGS = ("rn", "rz", "rm", "rp")


def outlined(
    emitter: Emitter, name: str, result: str, arguments: list[str], build: Callable[..., str], inline: bool = False
) -> str:
    """Call the function `name` of the module, written on first use by `build(emitter, *parameters)`.

    `arguments` carry their LLVM type; `build` returns the SSA name of the result, of LLVM type `result`.
    """
    text = emitter.module.helpers.get(name)
    if text is None:
        inner = Emitter(emitter.program, emitter.module)
        inner.instruction = emitter.instruction
        types = [argument.rsplit(" ", 1)[0] for argument in arguments]
        value = build(inner, *(f"%p{place}" for place in range(len(types))))
        parameters = ", ".join(f"{kind} %p{place}" for place, kind in enumerate(types))
        attribute = "alwaysinline" if inline else "noinline"
        body = "\n".join((*inner.lines, f"ret {result} {value}"))
        text = f"define internal {result} @{name}({parameters}) {attribute} nounwind {{\n{body}\n}}"
    return emitter.helper(name, text, result, *arguments)


def float_constant(value: float) -> str:
    """A number as an LLVM constant of type float or double: the pattern of the double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def widen(emitter: Emitter, bits: str, source: Format) -> str:
    """A pattern of f16, bf16, f32 or f64 as float (double for f64): exact."""
    if source is BF16:
        wide = emitter.op("shl i32 {}, 16", emitter.resize(bits, 16, 32))
        return emitter.to_float(wide, "float")
    value = emitter.to_float(bits, source.llvm)
    return emitter.op("fpext half {} to float", value) if source is F16 else value


def to_double(emitter: Emitter, bits: str, source: Format) -> str:
    """A pattern of f16, bf16, f32 or f64 as double: exact."""
    value = widen(emitter, bits, source)
    return value if source is F64 else emitter.op("fpext float {} to double", value)


def canonical(emitter: Emitter, value: str, kind: str, target: Format) -> str:
    """The pattern of a float or double, with the one NaN of its format."""
    nan = emitter.op(f"fcmp uno {kind} {{}}, 0.0", value)
    return emitter.select(nan, f"i{target.bits}", str(target.nan), emitter.to_bits(value, kind))


def round_float(emitter: Emitter, value: str, target: Format) -> str:
    """A float rounded to nearest even f16 or bf16, as a pattern."""
    if target is F32:
        return canonical(emitter, value, "float", target)
    if target is BF16:
        return outlined(emitter, "round.bf16", "i16", [f"float {value}"], _round_bf16, inline=True)
    nan = emitter.op("fcmp uno float {}, 0.0", value)
    half = emitter.to_bits(emitter.op("fptrunc float {} to half", value), "half")
    return emitter.select(nan, "i16", str(F16.nan), half)


def _round_bf16(emitter: Emitter, value: str) -> str:
    bits = emitter.to_bits(value, "float")
    odd = emitter.op("and i32 {}, 1", emitter.op("lshr i32 {}, 16", bits))
    rounded = emitter.op("add i32 {}, {}", bits, emitter.op("add i32 {}, 32767", odd))
    high = emitter.op("trunc i32 {} to i16", emitter.op("lshr i32 {}, 16", rounded))
    return emitter.select(emitter.op("fcmp uno float {}, 0.0", value), "i16", str(BF16.nan), high)


def narrow(emitter: Emitter, value: str, target: Format, mode: str = "rn", finite: bool = False) -> str:
    """A double rounded once to `target`: i64, the pattern in its low bits. `finite`: overflow gives the largest number.

    Modes: rn (ties to even), rna (ties away from zero), rz, rm (down), rp (up).
    """
    name = f"narrow.{target.name}.{mode}{'.finite' if finite else ''}"
    build = lambda inner, bits: _narrow(inner, bits, target, mode, finite)
    return outlined(emitter, name, "i64", [f"i64 {emitter.to_bits(value, 'double')}"], build)


def _narrow(emitter: Emitter, bits: str, target: Format, mode: str, finite: bool) -> str:
    op, select = emitter.op, emitter.select
    negative = op("icmp slt i64 {}, 0", bits)
    magnitude = op(f"and i64 {{}}, {F64.sign - 1}", bits)
    exponent = op(f"sub i64 {{}}, {F64.bias - target.bias}", op("lshr i64 {}, 52", magnitude))
    fraction = op(f"and i64 {{}}, {(1 << 52) - 1}", magnitude)
    zero = op("icmp eq i64 {}, 0", magnitude)
    significand = select(zero, "i64", "0", op(f"or i64 {{}}, {1 << 52}", fraction))
    # Below the least normal number fewer bits are kept; a shift of 54 leaves nothing but the sticky bit.
    normal = op("icmp sgt i64 {}, 0", exponent)
    missing = emitter.intrinsic("llvm.umin.i64", "i64", f"i64 {op('sub i64 1, {}', exponent)}", "i64 54")
    lost = select(normal, "i64", "0", missing)
    shift = emitter.intrinsic(
        "llvm.umin.i64", "i64", f"i64 {op(f'add i64 {{}}, {52 - target.mantissa}', lost)}", "i64 62"
    )
    kept = op("lshr i64 {}, {}", significand, shift)
    rest = op("sub i64 {}, {}", significand, op("shl i64 {}, {}", kept, shift))
    half = op("shl i64 1, {}", op("sub i64 {}, 1", shift))
    up = _rounds_up(emitter, mode, kept, rest, half, negative)
    base = select(normal, "i64", op("sub i64 {}, 1", exponent), "0")  # the implicit bit adds the missing one
    pattern = op("add i64 {}, {}", op(f"shl i64 {{}}, {target.mantissa}", base), kept)
    pattern = op("add i64 {}, {}", pattern, op("zext i1 {} to i64", up))
    pattern = _limited(emitter, pattern, magnitude, negative, target, mode, finite)
    sign = select(negative, "i64", str(target.sign), "0")
    nan = op(f"icmp ugt i64 {{}}, {F64.infinity}", magnitude)
    return select(nan, "i64", str(target.nan), op("or i64 {}, {}", pattern, sign))


def _rounds_up(emitter: Emitter, mode: str, kept: str, rest: str, half: str, negative: str) -> str:
    op = emitter.op
    if mode == "rz":
        return "false"
    if mode in ("rm", "rp"):
        inexact = op("icmp ne i64 {}, 0", rest)
        away = negative if mode == "rm" else op("xor i1 {}, true", negative)
        return op("and i1 {}, {}", inexact, away)
    if mode == "rna":
        return op("icmp uge i64 {}, {}", rest, half)
    tie = op("and i1 {}, {}", op("icmp eq i64 {}, {}", rest, half), op("trunc i64 {} to i1", kept))
    return op("or i1 {}, {}", op("icmp ugt i64 {}, {}", rest, half), tie)


def _limited(
    emitter: Emitter, pattern: str, magnitude: str, negative: str, target: Format, mode: str, finite: bool
) -> str:
    """The pattern, or what stands for a number beyond the largest."""
    op, largest = emitter.op, str(target.largest)
    over = op(f"icmp ugt i64 {{}}, {largest}", pattern)
    if finite or not target.has_infinity:
        return emitter.select(over, "i64", largest, pattern)
    toward_zero = {"rn": "false", "rna": "false", "rz": "true", "rp": negative}.get(mode)
    if toward_zero is None:
        toward_zero = op("xor i1 {}, true", negative)
    infinite = op(f"icmp eq i64 {{}}, {F64.infinity}", magnitude)
    stays = op("and i1 {}, {}", toward_zero, op("xor i1 {}, true", infinite))
    beyond = emitter.select(stays, "i64", largest, str(target.infinity))
    return emitter.select(over, "i64", beyond, pattern)


def flush(emitter: Emitter, bits: str, source: Format) -> str:
    """A subnormal as zero of its sign (`.ftz`)."""
    kind = f"i{source.bits}"
    exponent = emitter.op(f"and {kind} {{}}, {source.infinity}", bits)
    tiny = emitter.op(f"icmp eq {kind} {{}}, 0", exponent)
    return emitter.select(tiny, kind, emitter.op(f"and {kind} {{}}, {source.sign}", bits), bits)


def is_nan(emitter: Emitter, bits: str, source: Format) -> str:
    """Whether a pattern is a NaN (i1)."""
    kind = f"i{source.bits}"
    return emitter.op(f"icmp ugt {kind} {{}}, {source.infinity}", magnitude_of(emitter, bits, source))


def magnitude_of(emitter: Emitter, bits: str, source: Format) -> str:
    """A pattern without its sign."""
    return emitter.op(f"and i{source.bits} {{}}, {source.sign - 1}", bits)

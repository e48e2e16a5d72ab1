"""`cvt` to and from UE8M0, the powers of two that scale blocks of narrow numbers: one byte of exponent, 0xFF for NaN.

PTX ISA, "cvt"; what happens to signs, subnormal numbers and infinity
is what CUDA's `cuda_fp8.hpp` computes on the host.
"""

from __future__ import annotations

from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.ptx.syntax import Instruction

_MANTISSA = 23
_INFINITY = 0x7F80_0000
_UNKNOWN, _LARGEST = 0xFF, 0xFE
_HALF_OF_LEAST = 1 << (_MANTISSA - 1)  # 2^-127 as float32: a subnormal number


@native("cvt.{rz,rp}{,.satfinite}.ue8m0x2.{f32,bf16x2}")
def to_powers_of_two(emitter: Emitter, instruction: Instruction) -> None:
    """`cvt.{rz,rp}{.satfinite}.ue8m0x2.f32 d, a, b` (b is the low byte), or of one pair of bf16."""
    destination, *sources = instruction.operands
    if instruction.modifiers[-1] == "f32":
        values = [emitter.value(operand, 32) for operand in reversed(sources)]
    else:
        values = [
            emitter.op("shl i32 {}, 16", emitter.resize(half, 16, 32))
            for half in emitter.unpack(emitter.value(sources[0], 32), 32, 16)
        ]
    parts = [_power(emitter, value, instruction) for value in values]
    emitter.assign(destination, emitter.pack(parts, 16), 16)


def _power(emitter: Emitter, bits: str, instruction: Instruction) -> str:
    """The byte (i8) for a float32 pattern; the sign does not count."""
    op = emitter.op
    magnitude = op("and i32 {}, 2147483647", bits)
    power = op(f"lshr i32 {{}}, {_MANTISSA}", magnitude)
    if "rp" in instruction.modifiers:
        inexact = op("icmp ne i32 {}, 0", op(f"and i32 {{}}, {(1 << _MANTISSA) - 1}", magnitude))
        inside = op(f"icmp ult i32 {{}}, {_INFINITY}", magnitude)
        above = op(f"icmp ugt i32 {{}}, {_HALF_OF_LEAST}", magnitude)
        up = op("and i1 {}, {}", inexact, op("and i1 {}, {}", inside, above))
        power = op("add i32 {}, {}", power, op("zext i1 {} to i32", up))
    if "satfinite" in instruction.modifiers:
        number = op(f"icmp ule i32 {{}}, {_INFINITY}", magnitude)
        over = op("and i1 {}, {}", number, op(f"icmp eq i32 {{}}, {_UNKNOWN}", power))
        power = emitter.select(over, "i32", str(_LARGEST), power)
    return op("trunc i32 {} to i8", power)


@native("cvt.rn.bf16x2.ue8m0x2")
def from_powers_of_two(emitter: Emitter, instruction: Instruction) -> None:
    """`cvt.rn.bf16x2.ue8m0x2 d, a`: exact; 2^-127 is a subnormal number of bf16."""
    destination, source = instruction.operands
    halves = []
    for part in emitter.unpack(emitter.value(source, 16), 16, 8):
        wide = emitter.resize(part, 8, 16)
        value = emitter.op("shl i16 {}, 7", wide)
        value = emitter.select(emitter.op("icmp eq i16 {}, 0", wide), "i16", str(0x40), value)
        unknown = emitter.op(f"icmp eq i16 {{}}, {_UNKNOWN}", wide)
        halves.append(emitter.select(unknown, "i16", str(0x7FFF), value))
    emitter.assign(destination, emitter.pack(halves, 32), 32)

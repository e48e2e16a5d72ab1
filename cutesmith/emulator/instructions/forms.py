"""Reading the dotted form of an instruction: types, modifiers that must be known or refused, literals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, bits_of

_TYPES = frozenset(
    "pred b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 bf16 f32 f64 f16x2 bf16x2 u16x2 s16x2".split()
)


class IntegerType(NamedTuple):
    """Bits of an integer, and whether it is signed."""

    bits: int
    signed: bool

    @property
    def letter(self) -> str:
        """LLVM's prefix of signed and unsigned operations."""
        return "s" if self.signed else "u"


def integer_type(instruction: Instruction, name: str) -> IntegerType:
    """The type that a modifier such as "s32", "u16" or "b64" names; raises UnsupportedInstruction for another."""
    if name[:1] in ("s", "u", "b") and name[1:] in ("8", "16", "32", "64"):
        return IntegerType(int(name[1:]), name[0] == "s")
    raise UnsupportedInstruction(instruction, f"type .{name}")


def type_bits(instruction: Instruction, name: str) -> int:
    """Bits of a value of type "pred", "b32", "f16x2", …; raises UnsupportedInstruction for another."""
    if name not in _TYPES:
        raise UnsupportedInstruction(instruction, f"type .{name}")
    return bits_of(name)


def take(instruction: Instruction, *known: str) -> set[str]:
    """Modifiers but the last (the type), all of which must be `known`; raises UnsupportedInstruction."""
    modifiers = set(instruction.modifiers[:-1])
    if strange := modifiers - set(known):
        raise UnsupportedInstruction(instruction, f".{sorted(strange)[0]}")
    return modifiers


def literal_bits(operand: Immediate, dtype: np.dtype[Any]) -> int:
    """The literal's bits in the width of `dtype`; a float literal of the other width is converted."""
    if not operand.float_bits:
        return operand.value & ((1 << 8 * dtype.itemsize) - 1)
    if dtype.itemsize * 8 == operand.float_bits or dtype.itemsize < 4:
        return operand.value
    value = np.array(operand.value, f"u{operand.float_bits // 8}").view(f"f{operand.float_bits // 8}")
    return int(value.astype(f"f{dtype.itemsize}").view(f"u{dtype.itemsize}"))

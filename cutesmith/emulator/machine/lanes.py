"""How a handler sees the lanes that wait at a stop: operands as arrays, one element a lane, or one row a warp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cutesmith.emulator.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
)

if TYPE_CHECKING:
    from cutesmith.emulator.machine.wave import Wave

WARP = 32
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Lanes:
    """Lanes of a wave at one instruction; `lanes` are int64 indices into the wave, shape (n,)."""

    wave: Wave
    instruction: Instruction
    lanes: Array

    def read(self, operand: Operand, dtype: Any = np.uint32) -> Array:
        """The operand's bits as `dtype` (a numpy integer, float or bool type), shape (n,).

        A register is truncated to the type's width; `bool` reads a predicate.
        """
        return self.wave.read(operand, self.lanes, np.dtype(dtype))

    def write(self, operand: Operand, values: Array, where: Array | None = None) -> None:
        """Set a register (a Sink swallows it) from values of any numpy type, shape (n,) or a scalar."""
        self.wave.write(operand, self.lanes, values, where)

    def address(self, operand: Address) -> Array:
        """uint64 addresses of `[base + offset]`, shape (n,)."""
        return self.wave.address(operand, self.lanes)


@dataclass
class Warps:
    """Whole warps at one instruction.

    `members` (w, 32): lane indices, -1 where the block has no such thread; `active` (w, 32): which of them execute the
    instruction now. Values of inactive lanes read as 0 and are never written.
    """

    wave: Wave
    instruction: Instruction
    members: Array
    active: Array

    def read(self, operand: Operand, dtype: Any = np.uint32) -> Array:
        """The operand's bits as `dtype`, shape (w, 32)."""
        values = np.zeros(self.active.shape, np.dtype(dtype))
        values[self.active] = self.wave.read(operand, self.members[self.active], np.dtype(dtype))
        return values

    def write(self, operand: Operand, values: Array) -> None:
        """Set a register of the active lanes, values of shape (w, 32)."""
        self.wave.write(operand, self.members[self.active], np.broadcast_to(values, self.active.shape)[self.active])

    def address(self, operand: Address) -> Array:
        """uint64 addresses, shape (w, 32)."""
        values = np.zeros(self.active.shape, np.uint64)
        values[self.active] = self.wave.address(operand, self.members[self.active])
        return values

    def flat(self) -> Lanes:
        """The active lanes in a row."""
        return Lanes(self.wave, self.instruction, self.members[self.active])


def read_operand(wave: Wave, operand: Operand, lanes: Array, dtype: np.dtype[Any]) -> Array:
    """The value of a register, special register, immediate or symbol for each lane."""
    if isinstance(operand, Register):
        bits = wave.frame[wave.program.slots[operand.name], lanes]
        if dtype == np.bool_:
            truth: Array = (bits & np.uint64(1)).astype(bool) ^ operand.negated
            return truth
        if dtype.itemsize == 16:
            raise TypeError("read 128-bit registers through wave.frame")
        return _as(bits, dtype)
    if isinstance(operand, SpecialRegister):
        return _as(wave.special_register(operand.name, lanes), dtype)
    if isinstance(operand, Symbol):
        return _as(wave.symbol(operand, lanes), dtype)
    if isinstance(operand, Immediate):
        literal: Array = np.full(lanes.shape, immediate_bits(operand, dtype), f"u{dtype.itemsize}").view(dtype)
        return literal
    raise TypeError(f"{operand!r} has no value")


def _as(bits: Array, dtype: np.dtype[Any]) -> Array:
    """uint64 bits, truncated to the type's width and taken as one."""
    taken: Array = bits.astype(f"u{dtype.itemsize}").view(dtype)
    return taken


def immediate_bits(operand: Immediate, dtype: np.dtype[Any]) -> int:
    """The literal's bits in the width of `dtype`; a float literal of the other width is converted."""
    if not operand.float_bits:
        return operand.value & ((1 << 8 * dtype.itemsize) - 1)
    value = np.array(operand.value, f"u{operand.float_bits // 8}").view(f"f{operand.float_bits // 8}")
    if dtype.itemsize * 8 == operand.float_bits or dtype.itemsize < 4:
        return operand.value
    return int(value.astype(f"f{dtype.itemsize}").view(f"u{dtype.itemsize}"))


def write_operand(wave: Wave, operand: Operand, lanes: Array, values: Any, where: Array | None) -> None:
    """Set a register's bits, zero-extended to its row of the frame."""
    if isinstance(operand, Sink):
        return
    if not isinstance(operand, Register):
        raise TypeError(f"{operand!r} is no destination")
    array = np.broadcast_to(np.asarray(values), lanes.shape)
    if array.dtype != np.bool_:
        array = array.view(f"u{array.dtype.itemsize}")
    if where is not None:
        lanes, array = lanes[where], array[where]
    wave.frame[wave.program.slots[operand.name], lanes] = array.astype(np.uint64)

"""How a handler sees the lanes at a suspension point: operands as arrays, an element a lane or a row a warp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Sink
from cutesmith.emulator.state.wave import Wave


@dataclass
class _AtInstruction:
    """What both views of lanes have."""

    machine: Machine
    instruction: Instruction

    @property
    def wave(self) -> Wave:
        """The wave that the lanes belong to."""
        return self.machine.wave

    @property
    def memory(self) -> Memory:
        """The memory of the launch."""
        return self.machine.memory


@dataclass
class LaneBatch(_AtInstruction):
    """Lanes at one instruction; `lanes` are int64 indices into the wave, shape (n,)."""

    lanes: Array

    def read(self, operand: Operand, dtype: Any = np.uint32) -> Array:
        """The operand's bits as `dtype` (see Wave.read), shape (n,)."""
        return self.wave.read(operand, self.lanes, dtype)

    def write(self, operand: Operand, values: Array, where: Array | None = None) -> None:
        """Set a register (a Sink swallows it) from values of any numpy type, shape (n,) or a scalar."""
        self.wave.write(operand, self.lanes, values, where)

    def address(self, operand: Address) -> Array:
        """uint64 addresses of `[base + offset]`, shape (n,)."""
        return self.wave.address(operand, self.lanes)


@dataclass
class Warps(_AtInstruction):
    """Whole warps at one instruction.

    `members` (w, 32): indices into the wave, -1 where the block has no such thread; `active` (w, 32): which of them
    execute the instruction now. Values of inactive lanes read as 0 and are never written.
    """

    members: Array
    active: Array

    @cached_property
    def lanes(self) -> Array:
        """The active lanes, (n,), warp by warp."""
        lanes: Array = self.members.ravel() if self.active.all() else self.members[self.active]
        return lanes

    def read(self, operand: Operand, dtype: Any = np.uint32) -> Array:
        """The operand's bits as `dtype`, shape (w, 32)."""
        return self._by_warp(self.wave.read(operand, self.lanes, dtype))

    def write(self, operand: Operand, values: Array) -> None:
        """Set a register of the active lanes, values of shape (w, 32); a Sink swallows them."""
        if isinstance(operand, Sink):
            return
        values = np.broadcast_to(values, self.active.shape)
        self.wave.write(operand, self.lanes, values.ravel() if self._whole else values[self.active])

    def address(self, operand: Address) -> Array:
        """uint64 addresses, shape (w, 32)."""
        return self._by_warp(self.wave.address(operand, self.lanes))

    @property
    def _whole(self) -> bool:
        return len(self.lanes) == self.active.size

    def _by_warp(self, values: Array) -> Array:
        """The values of the active lanes, (n,), as (w, 32)."""
        if self._whole:
            return values.reshape(self.active.shape)
        spread = np.zeros(self.active.shape, values.dtype)
        spread[self.active] = values
        return spread

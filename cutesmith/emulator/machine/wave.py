"""The state of the blocks that run side by side: frame, special registers, memory and the context of native code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cutesmith.emulator.faults import Finding
from cutesmith.emulator.machine.findings import Findings
from cutesmith.emulator.machine.lanes import Array, read_operand, write_operand
from cutesmith.emulator.native.abi import (
    CONTEXT_WORDS,
    PARAMETER_WINDOW,
    SHARED_RANK_SHIFT,
    SPECIAL_REGISTERS,
    Context,
)
from cutesmith.emulator.operations.printing import Printed
from cutesmith.emulator.program.pieces import Program
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Register, Symbol

if TYPE_CHECKING:
    from cutesmith.emulator.machine.memory import Memory

_ROWS = {name: row for row, name in enumerate(SPECIAL_REGISTERS)}


@dataclass
class Wave:
    """All lanes of some whole clusters. Lanes of a block are consecutive, in the order of their flat thread index.

    `frame`: uint64 (slot_count, lanes). `special`: uint32 (len(SPECIAL_REGISTERS), lanes). `block_of_lane`,
    `cluster_of_lane`: uint32 (lanes,). `blocks`: (x, y, z) of each block of the wave. `members`: int64 (warps, 32), the
    lanes of each warp, -1 where the block has no such thread. `shared`: uint8 (blocks, bytes); `local`: uint8 (lanes,
    bytes). `parameters` (uint8), `counts` (uint64, by piece), `findings` and `printed` belong to the whole launch.
    `tensor_core_sm`: whose tensor cores `mma` rounds like; 0 means those of the program's target. `patient`:
    whether an instruction that waits for some time (`mbarrier.try_wait`) goes on waiting; False when nobody can move.
    """

    program: Program
    memory: Memory
    frame: Array
    special: Array
    block_of_lane: Array
    cluster_of_lane: Array
    blocks: Array
    members: Array
    stops: Array
    threads_per_block: int
    shared: Array
    local: Array
    parameters: Array
    counts: Array
    cluster_blocks: int = 1
    context: Array = field(default_factory=lambda: np.zeros(CONTEXT_WORDS, np.int64))
    findings: Findings = field(default_factory=Findings)
    printed: Printed = field(default_factory=Printed)
    tensor_core_sm: int = 0
    patient: bool = True

    @property
    def lane_count(self) -> int:
        """Lanes of the wave."""
        return int(self.frame.shape[1])

    def thread(self, lane: int) -> tuple[int, int, int]:
        """(x, y, z) of a lane in its block."""
        x, y, z = (int(self.special[_ROWS[f"%tid.{axis}"], lane]) for axis in "xyz")
        return (x, y, z)

    def block(self, lane: int) -> tuple[int, int, int]:
        """(x, y, z) of a lane's block in the grid."""
        x, y, z = (int(index) for index in self.blocks[self.block_of_lane[lane]])
        return (x, y, z)

    def report(self, kind: str, message: str, lanes: Array, instruction: Instruction | None) -> None:
        """Write a fault of `lanes` (at least one) down: a kind of faults.KINDS, a sentence; the first lane is named."""
        lane, location = int(lanes[0]), instruction.location if instruction else None
        finding = Finding(kind, message, location, self.thread(lane), self.block(lane), count=len(lanes))
        self.findings.add(finding, instruction.number if instruction else -1)

    def read(self, operand: Operand, lanes: Array, dtype: np.dtype[Any]) -> Array:
        """The operand's value for each of `lanes` (see Lanes.read)."""
        return read_operand(self, operand, lanes, dtype)

    def write(self, operand: Operand, lanes: Array, values: Any, where: Array | None = None) -> None:
        """Set a register of `lanes` (see Lanes.write)."""
        write_operand(self, operand, lanes, values, where)

    def address(self, operand: Address, lanes: Array) -> Array:
        """uint64 addresses of `[base + offset]`."""
        bits = 64
        if isinstance(operand.base, Register):
            bits = self.program.widths[operand.base.name]
        base = self.read(operand.base, lanes, np.dtype(np.uint64))
        addresses: Array = (base + np.uint64(operand.offset & (2**64 - 1))) & np.uint64(2**bits - 1)
        return addresses

    def special_register(self, name: str, lanes: Array) -> Array:
        """uint64 values of a special register."""
        if name in ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
            clock = int(self.context[Context.CLOCK])
            return np.full(lanes.shape, clock >> 32 if name.endswith("_hi") else clock, np.uint64)
        values: Array = self.special[_ROWS[name], lanes].astype(np.uint64)
        return values

    def symbol(self, operand: Symbol, lanes: Array) -> Array:
        """uint64 addresses of a variable in its own space: shared addresses carry the block's rank."""
        program = self.program
        if operand.name in program.shared_symbols:
            rank = self.special_register("%cluster_ctarank", lanes)
            offset = np.uint64(program.shared_symbols[operand.name] + operand.offset)
            return (rank << np.uint64(SHARED_RANK_SHIFT)) + offset
        if operand.name in program.local_symbols:
            return np.full(lanes.shape, program.local_symbols[operand.name] + operand.offset, np.uint64)
        if operand.name in program.parameters:
            return np.full(lanes.shape, PARAMETER_WINDOW + program.parameters[operand.name] + operand.offset, np.uint64)
        return np.full(lanes.shape, self.memory.module_symbol(operand.name) + operand.offset, np.uint64)

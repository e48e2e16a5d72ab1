"""Tensor memory: 128 lanes x 512 columns of 32 bits a block, allocated by columns, and who has touched what of it.

An address is lane << 16 | column. Warps of a block reach the lanes 32 (warp % 4) and following; the tensor core reaches
all. PTX ISA, "Tensor Memory".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.tensor_cores.tensor_memory_order import TensorMemoryOrder
from cutesmith.emulator.tensor_cores.tensor_memory_regions import COLUMNS, LANES, Region

FEWEST_COLUMNS = 32
_WARP_LANES = 32


@dataclass(frozen=True)
class Allocation:
    """Columns [start, start + count) of a block, and who asked for them."""

    start: int
    count: int
    lane: int
    instruction: Instruction


@dataclass
class BlockState:
    """What a block has allocated, by first column. `permitted`: it may still allocate. `group`: of its first tcgen05.

    `asked`, `granted`: how many allocations its warps have asked for and got; `waiting`: lanes that ask for one now.
    """

    allocations: dict[int, Allocation] = field(default_factory=dict)
    permitted: bool = True
    group: int = 0
    asked: int = 0
    granted: int = 0
    waiting: set[int] = field(default_factory=set)

    def free_columns(self, count: int) -> int | None:
        """The first column of so many free ones, aligned to their number; None where there are none."""
        taken = np.zeros(COLUMNS, bool)
        for allocation in self.allocations.values():
            taken[allocation.start : allocation.start + allocation.count] = True
        starts = range(0, COLUMNS - count + 1, FEWEST_COLUMNS)
        return next((start for start in starts if not taken[start : start + count].any()), None)


class TensorMemory(Unit):
    """The tensor memory of a wave: `data` uint32 (blocks, LANES, COLUMNS), `blocks` what each has allocated."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        count = len(machine.wave.blocks)
        fill = np.uint32(machine.fill * 0x0101_0101)
        self.data = np.full((count, LANES, COLUMNS), fill, np.uint32)
        self.written = np.zeros((count, LANES, COLUMNS), bool)
        self.blocks = [BlockState() for _ in range(count)]
        self.order = TensorMemoryOrder(machine, count)

    # ------------------------------------------------------------------------------------------------- allocation

    def allocate(self, block: int, count: int, lane: int, instruction: Instruction) -> int | None:
        """Take columns for a block: the first of them; None where there are too few now."""
        state = self.blocks[block]
        start = state.free_columns(count)
        if start is not None:
            state.allocations[start] = Allocation(start, count, lane, instruction)
        return start

    def free(self, block: int, start: int, count: int) -> str | None:
        """Give columns back; a sentence that says what is wrong with that."""
        allocations = self.blocks[block].allocations
        known = allocations.get(start)
        if known is None:
            return f"no allocation begins at column {start} of tensor memory: freed twice, or never allocated"
        if known.count != count:
            return f"{count} columns of tensor memory from {start}, of which {known.count} were allocated"
        del allocations[start]
        self.written[block, :, start : start + count] = False
        return None

    def finish(self) -> None:
        """All lanes have ended: what is still allocated is a leak."""
        for state in self.blocks:
            for allocation in state.allocations.values():
                columns = f"{allocation.count} columns of tensor memory from {allocation.start}"
                message = f"{columns} are never freed: `tcgen05.dealloc` them before the block ends"
                self._report(FaultKind.TENSOR_MEMORY, message, allocation.lane, allocation.instruction)

    def use_group(self, block: int, lane: int, instruction: Instruction) -> None:
        """All tcgen05 instructions of a kernel name the same cta_group."""
        group = 2 if "cta_group::2" in instruction.modifiers else 1
        state = self.blocks[block]
        if state.group and state.group != group:
            message = f"`{instruction.full_opcode}` after instructions of cta_group::{state.group}: a kernel uses one"
            self._report(FaultKind.TENSOR_MEMORY, message, lane, instruction)
        state.group = group

    # ----------------------------------------------------------------------------------------------------- access

    def sound(self, region: Region, lane: int, instruction: Instruction) -> bool:
        """Whether the region lies in one allocation of its block; else there is a finding."""
        inside = region.column >= 0 and region.column + region.count <= COLUMNS
        inside &= int(region.lanes[0]) >= 0 and int(region.lanes[-1]) < LANES
        if not inside:
            message = f"`{instruction.full_opcode}` reaches {region}, which has {LANES} lanes and {COLUMNS} columns"
            self._report(FaultKind.OUT_OF_BOUNDS, message, lane, instruction)
            return False
        held = self.blocks[region.block].allocations.values()
        last = region.column + region.count
        if not any(one.start <= region.column and last <= one.start + one.count for one in held):
            known = ", ".join(f"{one.start}-{one.start + one.count - 1}" for one in held)
            told = f"columns {known}" if known else "no columns"
            message = f"`{instruction.full_opcode}` uses {region}; its block has allocated {told}"
            self._report(FaultKind.TENSOR_MEMORY, message, lane, instruction)
            return False
        return True

    def read(self, region: Region) -> Array:
        """uint32 (lanes, columns) as they are now."""
        return np.ascontiguousarray(self.data[region.block, region.lanes, region.columns])

    def write(self, region: Region, values: Array, rows: Array | None = None) -> None:
        """Set the region, or only those of its lanes that `rows` (bool) says."""
        lanes = region.lanes if rows is None else region.lanes[rows]
        values = values if rows is None else values[rows]
        self.data[region.block, lanes, region.columns] = values

    def shift_rows(self, region: Region) -> None:
        """Each lane gets what the next one holds, but the last of the 32 lanes of a warp."""
        self.write(region, _moved_up(self.read(region)))

    def will_shift(self, region: Region) -> None:
        """The rows of the region will have moved once what was asked for is done."""
        self.written[region.block, region.lanes, region.columns] = _moved_up(
            self.written[region.block, region.lanes, region.columns]
        )

    def need_written(self, region: Region, lane: int, instruction: Instruction) -> None:
        """A finding where the region was never written since its allocation."""
        if self.machine.memory.sanitize and not self.written[region.block, region.lanes, region.columns].all():
            message = f"`{instruction.full_opcode}` reads {region}, of which not all was written"
            self._report(FaultKind.UNINITIALISED_READ, message, lane, instruction)

    def will_write(self, region: Region) -> None:
        """The region will hold values once what was asked for is done."""
        self.written[region.block, region.lanes, region.columns] = True

    def _report(self, kind: FaultKind, message: str, lane: int, instruction: Instruction) -> None:
        self.machine.wave.report(kind, message, np.array([lane]), instruction)


def _moved_up(rows: Array) -> Array:
    """Rows (lanes, columns) of whole warps, each but a warp's last replaced by the next."""
    warps = rows.reshape(-1, _WARP_LANES, rows.shape[1])
    return np.concatenate([warps[:, 1:], warps[:, -1:]], axis=1).reshape(rows.shape)

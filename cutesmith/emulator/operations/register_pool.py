"""`setmaxnreg`: the registers of a block are one pool; an increase waits until others have given up as many.

PTX ISA, "setmaxnreg". Counted by warps, although the manual asks for warpgroups: shipped kernels give each warp of one
an instruction of its own. Registers beyond the count stay readable.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Immediate, Instruction

LEAST, MOST, STEP = 24, 256, 8


class _Pool(Unit):
    """Registers that a thread of each warp of the wave may use, int64 (warps,); `changes` counts what was set.

    `left`: what warps of each block have given up and no other has taken, int64 (blocks,).
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.start = -(-machine.wave.registers // STEP) * STEP
        self.held = np.full(len(machine.wave.members), self.start, np.int64)
        self.left = np.zeros(len(machine.wave.blocks), np.int64)
        self.changes = 0

    def of_block(self, warp: int) -> Array:
        """Those of all warps of the block of a warp."""
        blocks = self.machine.warps.block_of_warp
        held: Array = self.held[blocks == blocks[warp]]
        return held

    def set(self, warps: Array, count: int) -> Array:
        """Give these warps, one after another, so many; bool (n,): False where the block has too few left."""
        blocks, more = self.machine.warps.block_of_warp[warps], count - self.held[warps]
        given = np.ones(len(warps), bool)
        asked = np.bincount(blocks, more, len(self.left))
        if self.start and not (asked <= np.maximum(0, self.left)).all():
            left = self.left.copy()
            for index, (block, registers) in enumerate(zip(blocks.tolist(), more.tolist(), strict=True)):
                given[index] = registers <= max(0, left[block])
                left[block] -= given[index] * registers
        np.subtract.at(self.left, blocks[given], more[given])
        self.held[warps[given]] = count
        self.changes += int(given.sum())
        return given


def _waits_for(machine: Machine, instruction: Instruction, lane: int) -> str:
    pool, warp = machine.unit(_Pool), int(machine.warps.warp_of_lane[lane])
    held = pool.of_block(warp)
    groups = " + ".join(str(int(part.max())) for part in np.array_split(held, -(-len(held) // 4)))
    return (
        f"for registers: threads of its warpgroups hold {groups}, and the block started with {pool.start} each; "
        "let others decrease by more, or ask for fewer"
    )


def _changes(machine: Machine) -> int:
    return machine.unit(_Pool).changes


@lane_operation(
    "setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32", waits_for=_waits_for, changes=_changes
)
def set_registers(batch: LaneBatch) -> Array:
    """`setmaxnreg.{inc,dec}.sync.aligned.u32 count`: an increase of a warp waits for the registers of others."""
    operand = batch.instruction.operands[0]
    count, increases = operand.value if isinstance(operand, Immediate) else 0, "inc" in batch.instruction.modifiers
    done = np.ones(len(batch.lanes), bool)
    if not LEAST <= count <= MOST or count % STEP:
        _report(batch, f"setmaxnreg to {count} registers: {LEAST} to {MOST} in steps of {STEP}", batch.lanes)
        return done
    pool, of_lane = batch.machine.unit(_Pool), batch.machine.warps.warp_of_lane[batch.lanes]
    warps, indices = np.unique(of_lane, return_inverse=True)
    held = pool.held[warps]
    wrong = (count < held if increases else count > held) & bool(pool.start)
    for warp, mine in zip(warps[wrong].tolist(), held[wrong].tolist(), strict=True):
        what = "increases to fewer" if increases else "decreases to more"
        lanes = batch.lanes[of_lane == warp]
        _report(batch, f"setmaxnreg {what} registers ({count}) than a thread has ({mine})", lanes)
    goes_on = wrong.copy()
    goes_on[~wrong] = pool.set(warps[~wrong], count)
    done = goes_on[indices]
    return done


def _report(batch: LaneBatch, message: str, lanes: Array) -> None:
    batch.wave.report(FaultKind.INVALID_OPERAND, message, lanes, batch.instruction)

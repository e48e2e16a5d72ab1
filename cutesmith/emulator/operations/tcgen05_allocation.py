"""`tcgen05.alloc`, `tcgen05.dealloc`, `tcgen05.relinquish_alloc_permit`: columns of tensor memory, by whole warps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.instructions import table
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.machine.scene import Scene
from cutesmith.emulator.machine.suspensions import Suspension, Waiting, warp_operation
from cutesmith.emulator.operations.bulk_requests import address_operand
from cutesmith.emulator.program.abi import SHARED_WINDOW, WINDOW_BYTES, Array, Space
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.sanitizer.actors import Channel, Engine
from cutesmith.emulator.tensor_cores.tensor_memory import FEWEST_COLUMNS, TensorMemory
from cutesmith.emulator.tensor_cores.tensor_memory_order import Use
from cutesmith.emulator.tensor_cores.tensor_memory_regions import COLUMNS, LANES, Region


@dataclass(frozen=True)
class AllocationSuspension(Suspension):
    """A warp waits until so many columns are free and, with cta_group::2, until the peer block allocates too."""

    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        return [self._execute(machine, waiting) for waiting in group]

    def _execute(self, machine: Machine, waiting: Waiting) -> Array:
        warps = machine.warps
        present = warps.spread(waiting.lanes)
        rows = np.flatnonzero(present.any(axis=1) & (present == warps.live).all(axis=1))
        done = np.zeros(len(present), bool)
        firsts = [int(machine.wave.members[row][present[row]][0]) for row in rows]
        for lane in firsts:
            _ask(machine, waiting.instruction, lane)
        for row, lane in zip(rows, firsts, strict=True):
            done[row] = _allocate(machine, waiting.instruction, lane)
        result: Array = done[warps.warp_of_lane[waiting.lanes]]
        return result

    def reason(self, scene: Scene, instruction: Instruction, lanes: Array) -> str:
        machine, lane = scene.machine, int(lanes[0])
        memory, block = machine.unit(TensorMemory), int(machine.wave.block_of_lane[lane])
        held = sum(one.count for one in memory.blocks[block].allocations.values())
        count = int(machine.wave.read(instruction.operands[1], np.array([lane]))[0])
        more = ", and for an allocation of the peer block" if "cta_group::2" in instruction.modifiers else ""
        return f"for {count} columns of tensor memory, of which its block has allocated {held} of {COLUMNS}{more}"


table.register(AllocationSuspension(), "tcgen05.alloc")


def _ask(machine: Machine, instruction: Instruction, lane: int) -> None:
    """Count a warp that has come to allocate, once."""
    state = machine.unit(TensorMemory).blocks[int(machine.wave.block_of_lane[lane])]
    if lane not in state.waiting:
        state.waiting.add(lane)
        state.asked += 1


def _allocate(machine: Machine, instruction: Instruction, lane: int) -> bool:
    """Whether the warp of a lane has got its columns, or can go on without."""
    wave, memory = machine.wave, machine.unit(TensorMemory)
    lanes, block = np.array([lane]), int(wave.block_of_lane[lane])
    state = memory.blocks[block]
    memory.use_group(block, lane, instruction)
    count = int(wave.read(instruction.operands[1], lanes)[0])
    wrong = None
    if count & (count - 1) or not FEWEST_COLUMNS <= count <= COLUMNS:
        wrong = f"{count} columns: a power of two from {FEWEST_COLUMNS} to {COLUMNS}"
    elif not state.permitted:
        wrong = "after `tcgen05.relinquish_alloc_permit` of its block"
    if wrong is not None:
        message = f"`{instruction.full_opcode}`: {wrong}"
        wave.report(FaultKind.TENSOR_MEMORY, message, lanes, instruction)
        return True
    if state.group == 2:
        peer = _peer(machine, block)
        if peer is None:
            message = f"`{instruction.full_opcode}` in a cluster of {wave.cluster_blocks}: a pair of blocks is needed"
            wave.report(FaultKind.INVALID_OPERAND, message, lanes, instruction)
            return True
        if memory.blocks[peer].asked <= state.granted:
            return False
    start = memory.allocate(block, count, lane, instruction)
    if start is None:
        return False
    state.granted += 1
    state.waiting.discard(lane)
    address = wave.address(address_operand(instruction, instruction.operands[0]), lanes)
    space = Space.SHARED
    if SHARED_WINDOW <= int(address[0]) < SHARED_WINDOW + WINDOW_BYTES:
        space = Space.GENERIC
    machine.memory.store(lanes, space, address, np.array([[start]], np.uint32).view(np.uint8), instruction.number)
    return True


def _peer(machine: Machine, block: int) -> int | None:
    """The other block of a pair."""
    blocks = machine.wave.cluster_blocks
    first = block // blocks * blocks
    peer = first + ((block - first) ^ 1)
    return peer if peer < first + blocks else None


@warp_operation("tcgen05.dealloc")
def free(warps: Warps) -> None:
    """`tcgen05.dealloc.cta_group::N.sync.aligned.b32 address, columns`: nothing may use them any more."""
    address, count = warps.instruction.operands
    memory = warps.machine.unit(TensorMemory)
    starts, counts = warps.read(address), warps.read(count)
    for row, members in enumerate(warps.members):
        lanes = members[warps.active[row]]
        first = int(warps.active[row].argmax())
        block = int(warps.wave.block_of_lane[lanes[0]])
        memory.use_group(block, int(lanes[0]), warps.instruction)
        start, columns = int(starts[row, first]), int(counts[row, first])
        wrong = memory.free(block, start & 0xFFFF, columns)
        if wrong is not None:
            message = f"`{warps.instruction.full_opcode}`: {wrong}"
            warps.wave.report(FaultKind.TENSOR_MEMORY, message, lanes[:1], warps.instruction)
            continue
        channel = Channel(Engine.TENSOR_CORE, ("tcgen05.dealloc", int(lanes[0])))
        request = warps.memory.request(int(lanes[0]), channel, warps.instruction.number)
        region = Region(block, np.arange(LANES), start & 0xFFFF, columns)
        known = warps.memory.known(lanes)
        memory.order.touch(region, Use.FREE, request, lanes, warps.instruction, known)


@warp_operation("tcgen05.relinquish_alloc_permit")
def relinquish(warps: Warps) -> None:
    """`tcgen05.relinquish_alloc_permit.cta_group::N.sync.aligned`: the block allocates no more."""
    memory = warps.machine.unit(TensorMemory)
    for row, members in enumerate(warps.members):
        lane = int(members[warps.active[row]][0])
        memory.blocks[int(warps.wave.block_of_lane[lane])].permitted = False

"""`tcgen05.ld`, `tcgen05.st` and what waits for them; the fences of tcgen05.

Registers that a load fills hold tokens (tensor_cores/in_flight.py) until `tcgen05.wait::ld`, or until one is used; a
store lands at `tcgen05.wait::st`. Order 1 of completion reads and writes at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch, Warps
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.suspensions import lane_operation, warp_operation
from cutesmith.emulator.operations.bulk_requests import address_operand
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.program.accumulators import CHECK
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand, Vector
from cutesmith.emulator.sanitizer.actors import Channel, Engine, Request
from cutesmith.emulator.tensor_cores.in_flight import serials_in, tokens
from cutesmith.emulator.tensor_cores.tensor_memory import TensorMemory
from cutesmith.emulator.tensor_cores.tensor_memory_fragments import FragmentShape, Reduction
from cutesmith.emulator.tensor_cores.tensor_memory_order import Use
from cutesmith.emulator.tensor_cores.tensor_memory_regions import Region, lane_and_column
from cutesmith.emulator.tensor_cores.tensor_pipe import TensorPipe

_WARP_LANES, _WARPS = 32, 4
_MOST_SERIALS = (1 << 15) - 1
_AT_ONCE = 1  # the order of completion


@dataclass
class Transfer:
    """A load or store of a warp: its regions (one, or one for each half of the threads), the registers as they are.

    `values` uint32 (registers, 32): of a store, or of a load that has read. With a `reduction`, that of the registers.
    """

    instruction: Instruction
    shape: FragmentShape
    regions: list[Region]
    request: Request
    values: Array | None = None
    serial: int = 0
    reduction: Reduction | None = None
    load: int = 0  # the serial of its first transfer: a load with a reduction has two, which are complete together

    def read(self, memory: TensorMemory) -> None:
        """Take what tensor memory holds, once."""
        if self.values is not None:
            return
        lanes, columns = self.shape.places()
        parts = [self._cells(memory.read(region))[lanes, columns] for region in self.regions]
        self.values = parts[0] if len(parts) == 1 else np.where(np.arange(WARP) < WARP // 2, parts[0], parts[1])
        if self.reduction is not None:
            self.values = self.reduction.of(self.values)[None]

    def _cells(self, words: Array) -> Array:
        """Cells as registers hold them."""
        if not self.shape.packed:
            return words
        halves = words & np.uint32(0xFFFF)
        packed: Array = halves[:, 0::2] | halves[:, 1::2] << np.uint32(16)
        return packed

    def write(self, memory: TensorMemory) -> None:
        """Put the registers into tensor memory."""
        assert self.values is not None
        lanes, columns = self.shape.places()
        for index, region in enumerate(self.regions):
            half = np.arange(WARP) // (WARP // 2) == index if len(self.regions) > 1 else np.ones(WARP, bool)
            width = region.count // 2 if self.shape.packed else region.count
            words = np.zeros((len(region.lanes), width), np.uint32)
            words[lanes[:, half], columns[:, half]] = self.values[:, half]
            if self.shape.packed:
                words = np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=2).reshape(len(words), -1)
            memory.write(region, words)


class Transfers(Unit):
    """Loads and stores of tensor memory that no wait has covered, by warp of the wave."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.loads: dict[int, list[Transfer]] = {}
        self.stores: dict[int, list[Transfer]] = {}
        self._serials: dict[int, int] = {}

    def next_serial(self, warp: int) -> int:
        """The number of a load in its warp, from 1; they begin again after 32767."""
        self._serials[warp] = self._serials.get(warp, 0) % _MOST_SERIALS + 1
        return self._serials[warp]

    def finish(self) -> None:
        """All lanes have ended: stores land."""
        memory = self.machine.unit(TensorMemory)
        for stores in self.stores.values():
            for store in stores:
                store.write(memory)


def _refuses(instruction: Instruction) -> str | None:
    if FragmentShape.parse(instruction):
        return None
    reduces = Reduction.parse(instruction) is not None and "16x32bx2" in instruction.modifiers
    return "which columns the reduction of 16x32bx2 takes is not settled" if reduces else "no such shape"


@warp_operation("tcgen05.ld", refuses=_refuses)
def load(warps: Warps) -> None:
    """`tcgen05.ld.sync.aligned.shape.num{.pack::16b}.b32 {registers}, [address]{, offset of the second half}`.

    `tcgen05.ld.red` has a register for its result before the address.
    """
    registers, *reduced, address = warps.instruction.operands[: 3 if "red" in warps.instruction.modifiers else 2]
    split = list(warps.instruction.operands[len(reduced) + 2 :])
    reduction = Reduction.parse(warps.instruction)
    unit, memory = warps.machine.unit(Transfers), warps.machine.unit(TensorMemory)
    for warp, loaded, lanes in _transfers(warps, registers, address, split, Use.LOAD):
        for operand in (registers, *reduced):
            transfer = loaded if operand is registers else replace(loaded, values=None, reduction=reduction)
            transfer.serial = unit.next_serial(warp)
            transfer.load = loaded.serial
            if warps.machine.order == _AT_ONCE:
                transfer.read(memory)
            unit.loads.setdefault(warp, []).append(transfer)
            marks = tokens(np.array([transfer.serial]), len(_elements(operand)))
            for register, mark in zip(_elements(operand), marks[:, 0], strict=True):
                warps.wave.write(register, lanes, np.full(len(lanes), mark, np.uint64))


@warp_operation("tcgen05.st", refuses=_refuses)
def store(warps: Warps) -> None:
    """`tcgen05.st.sync.aligned.shape.num{.unpack::16b}.b32 [address]{, offset}, {registers}`."""
    address, *split, registers = warps.instruction.operands
    unit, memory = warps.machine.unit(Transfers), warps.machine.unit(TensorMemory)
    for warp, transfer, lanes in _transfers(warps, registers, address, split, Use.STORE):
        transfer.values = np.stack([warps.wave.read(register, lanes) for register in _elements(registers)])
        if warps.machine.order == _AT_ONCE:
            transfer.write(memory)
        unit.stores.setdefault(warp, []).append(transfer)


def _elements(registers: Operand) -> tuple[Operand, ...]:
    return registers.elements if isinstance(registers, Vector) else (registers,)


def _transfers(
    warps: Warps, registers: Operand, address: Operand, split: list[Operand], use: Use
) -> list[tuple[int, Transfer, Array]]:
    """(warp of the wave, its transfer, its lanes) of each warp whose operands are sound."""
    instruction, memory = warps.instruction, warps.machine.unit(TensorMemory)
    shape = FragmentShape.parse(instruction)
    assert shape is not None
    if len(_elements(registers)) != shape.registers:
        raise UnsupportedInstruction(instruction, f"{shape.registers} registers are needed")
    found = []
    addresses = warps.address(address_operand(instruction, address))
    for row, members in enumerate(warps.members):
        lanes = members[warps.active[row]]
        first, warp = int(lanes[0]), int(warps.machine.warps.warp_of_lane[lanes[0]])
        asked = addresses[row][warps.active[row]]
        if len(lanes) < WARP or (asked != asked[0]).any():
            what = "by a part of a warp" if len(lanes) < WARP else "with addresses that differ between the threads"
            message = f"`{instruction.full_opcode}` {what}: all threads of a warp execute it with one address"
            warps.wave.report(FaultKind.INVALID_OPERAND, message, lanes, instruction)
            continue
        kind = f"tcgen05.{use.name}"
        request = warps.memory.request(first, Channel(Engine.TENSOR_CORE, (kind, warp)), instruction.number)
        regions = _regions(warps, shape, int(asked[0]), split, first)
        known = warps.memory.known(lanes)
        sound = all(memory.sound(region, first, instruction) for region in regions)
        if not sound or not _reachable(warps, regions, first):
            continue
        for region in regions:
            if use is Use.LOAD:
                memory.need_written(region, first, instruction)
            memory.order.touch(region, use, request, lanes, instruction, known)
            if use is Use.STORE:
                memory.will_write(region)
        found.append((warp, Transfer(instruction, shape, regions, request), lanes))
    return found


def _regions(warps: Warps, shape: FragmentShape, address: int, split: list[Operand], first: int) -> list[Region]:
    block = int(warps.wave.block_of_lane[first])
    lane, column = lane_and_column(address)
    starts = [column]
    if shape.split:
        (offset,) = split
        if not isinstance(offset, Immediate):
            raise UnsupportedInstruction(warps.instruction, "the offset of the second half is not a constant")
        starts.append(column + offset.value)
    return [Region(block, lane + np.arange(shape.lanes), start, shape.columns) for start in starts]


def _reachable(warps: Warps, regions: list[Region], first: int) -> bool:
    """Whether a warp may touch these lanes: those of its place among four."""
    own = (first % warps.wave.threads_per_block) // WARP % _WARPS * _WARP_LANES
    lanes = regions[0].lanes
    if own <= int(lanes[0]) and int(lanes[-1]) < own + _WARP_LANES:
        return True
    message = f"`{warps.instruction.full_opcode}` uses {regions[0]}: this warp reaches lanes {own}-{own + 31}"
    warps.wave.report(FaultKind.TENSOR_MEMORY, message, np.array([first]), warps.instruction)
    return False


# -------------------------------------------------------------------------------------------------- waits and fences


@warp_operation("tcgen05.wait::ld")
def wait_for_loads(warps: Warps) -> None:
    """`tcgen05.wait::ld.sync.aligned`: registers hold what the warp's loads have read."""
    unit, memory = warps.machine.unit(Transfers), warps.machine.unit(TensorMemory)
    for row, members in enumerate(warps.members):
        lanes = members[warps.active[row]]
        loads = unit.loads.pop(int(warps.machine.warps.warp_of_lane[lanes[0]]), [])
        if loads:
            _complete(warps.machine, memory, lanes, loads)


def _complete(machine: Machine, memory: TensorMemory, lanes: Array, loads: list[Transfer]) -> None:
    """Loads of a warp land: values come where tokens are, in registers of 32 bits and in the halves of those of 64."""
    for transfer in loads:
        transfer.read(memory)
    machine.memory.awaited(lanes, loads[-1].request)
    program, frame = machine.wave.program, machine.wave.frame
    slots = {slot for name, slot in program.slots.items() if program.widths[name] in (32, 64)}
    rows = np.array(sorted(slots), np.int64)
    words = np.ascontiguousarray(frame[rows[:, None], lanes]).view(np.uint32)  # (rows, 2 x lanes)
    serials = serials_in(words)
    held = np.flatnonzero(serials.any(axis=1))
    words, serials = words[held], serials[held]
    columns = np.broadcast_to(np.arange(2 * len(lanes)) // 2, words.shape)
    for transfer in loads:
        assert transfer.values is not None
        mine = serials == transfer.serial
        places = (words[mine] & np.uint32(127)).astype(np.int64)
        words[mine] = transfer.values[places, columns[mine]]
    frame[rows[held][:, None], lanes] = np.ascontiguousarray(words).view(np.uint64)


@warp_operation("tcgen05.wait::st")
def wait_for_stores(warps: Warps) -> None:
    """`tcgen05.wait::st.sync.aligned`: tensor memory holds what the warp has stored."""
    unit, memory = warps.machine.unit(Transfers), warps.machine.unit(TensorMemory)
    for row, members in enumerate(warps.members):
        lanes = members[warps.active[row]]
        stores = unit.stores.pop(int(warps.machine.warps.warp_of_lane[lanes[0]]), [])
        for transfer in stores:
            transfer.write(memory)
        if stores:
            warps.memory.awaited(lanes, stores[-1].request)


@lane_operation("tcgen05.fence::before_thread_sync")
def fence_before(batch: LaneBatch) -> None:
    """What the thread has asked for comes before what is ordered after this fence."""
    batch.machine.unit(TensorMemory).order.fence_before(batch.lanes)
    batch.memory.fence_relaxed(batch.lanes)


@lane_operation("tcgen05.fence::after_thread_sync")
def fence_after(batch: LaneBatch) -> None:
    """What the thread asks for next comes after what is ordered before this fence."""
    batch.memory.fence_relaxed(batch.lanes)
    batch.machine.unit(TensorMemory).order.fence_after(batch.lanes)
    batch.machine.unit(TensorPipe).fence_after(batch.lanes)


@lane_operation(f"{CHECK}.loading")
def use_of_loaded(batch: LaneBatch) -> None:
    """The next instruction uses these registers: the loads that fill them are complete then, and no others.

    The PTX ISA asks for `tcgen05.wait::ld`. Kernels of the DSL leave it out and count on the hardware, which waits for
    a load before a register that it fills is used.
    """
    (registers,) = batch.instruction.operands
    unit, memory = batch.machine.unit(Transfers), batch.machine.unit(TensorMemory)
    words = [batch.read(register, np.uint64).view(np.uint32).reshape(-1, 2) for register in _elements(registers)]
    serials = serials_in(np.concatenate(words, axis=1))
    warp_of_lane = batch.machine.warps.warp_of_lane[batch.lanes]
    for warp in np.unique(warp_of_lane[serials.any(axis=1)]).tolist():
        used = set(serials[warp_of_lane == warp].ravel().tolist())
        complete = {one.load for one in unit.loads.get(warp, ()) if one.serial in used}
        loads = [one for one in unit.loads.get(warp, ()) if one.load in complete]
        if loads:
            unit.loads[warp] = [one for one in unit.loads[warp] if one.load not in complete]
            members = batch.wave.members[warp]
            _complete(batch.machine, memory, members[members >= 0], loads)

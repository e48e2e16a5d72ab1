"""Tensor maps that a kernel changes: `tensormap.replace`, `tensormap.cp_fenceproxy`, `fence.proxy.tensormap`.

PTX ISA, "tensormap.replace" and "tensormap.cp_fenceproxy". The copy engine reads maps by a proxy of its own: a map that
was changed in this launch needs a release after the change, and an acquire of its address before a copy uses it. A copy
reads its map at any time until it is done, so a map may be changed only by who has waited for the copies that use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cutesmith.emulator.engines.tensor_maps import MAP_ALIGN, TensorMapError, replace_field
from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch, Warps
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.suspensions import lane_operation, warp_operation
from cutesmith.emulator.operations.bulk_requests import address_operand
from cutesmith.emulator.program.abi import PARAMETER_WINDOW, WINDOW_BYTES, Array, Space
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand
from cutesmith.emulator.sanitizer.actors import Request
from cutesmith.recording.tensor_map_calls import MAP_BYTES, MapField

_FIELDS = {str(field.value[0]): field for field in MapField}
_SPACES = {"global": Space.GLOBAL, "shared::cta": Space.SHARED}
_UNCHANGING = ("interleave_layout", "swizzle_atomicity")  # only their zero is understood


@dataclass
class _Change:
    """A map that was changed: by a thread of which block, whether that was released, which blocks have acquired it."""

    block: int
    released: bool = False
    acquired: set[int] = field(default_factory=set)


class ChangedMaps(Unit):
    """The maps in global memory that this wave has changed, and the copies that use maps there, by address.

    Copies of a cluster are judged against changes in it, for which the race check keeps what each thread knows.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._changes: dict[int, _Change] = {}
        self._uses: dict[int, dict[int, tuple[Request, ...]]] = {}

    def use(self, address: int, requests: tuple[Request, ...]) -> None:
        """A copy uses the map there; each of `requests` is how one of its destinations, or its source, is observed."""
        if address - PARAMETER_WINDOW not in range(WINDOW_BYTES):
            self._uses.setdefault(address, {})[requests[0].channel] = requests

    def change(self, instruction: Instruction, lanes: Array, address: int, *, released: bool) -> None:
        """These threads have changed the map there together."""
        wave, memory = self.machine.wave, self.machine.memory
        self._changes[address] = _Change(self._block(lanes[0]), released)
        uses, known = self._uses.pop(address, {}), memory.known(lanes)
        if known is None:
            return
        for requests in uses.values():
            first = requests[0]
            there = wave.cluster_of_lane[first.lane] == wave.cluster_of_lane[lanes[0]]
            if there and not any(memory.is_known(known, request) for request in requests):
                copy = wave.program.instructions[first.site]
                message = (
                    f"`{instruction.full_opcode}` changes a tensor map that `{copy.full_opcode}` may still read: wait "
                    "for the copy before, by its mbarrier or by its bulk group"
                )
                wave.report(FaultKind.RACE, message, lanes, instruction, other=copy.location)

    def release(self, lanes: Array) -> None:
        """These threads have executed `fence.proxy.tensormap::generic.release`."""
        blocks = {self._block(lane) for lane in lanes.tolist()}
        for change in self._changes.values():
            change.released |= change.block in blocks

    def acquire(self, lane: int, address: int) -> None:
        """A thread has executed the acquiring fence for that address."""
        if (change := self._changes.get(address)) is not None and change.released:
            change.acquired.add(self._block(lane))

    def missing_fence(self, lane: int, address: int) -> str:
        """What a copy of that thread with the map there lacks; "" if nothing."""
        change = self._changes.get(address)
        if change is None or self._block(lane) in change.acquired:
            return ""
        missing = "acquire" if change.released else "release"
        return f"its tensor map was changed with no `fence.proxy.tensormap::generic.{missing}` of it since"

    def _block(self, lane: int) -> int:
        return int(self.machine.wave.block_of_lane[lane])


@lane_operation("tensormap.replace")
def replace(batch: LaneBatch) -> None:
    """`tensormap.replace.tile.field{.space}.b1024.type [map]{, index}, value`."""
    instruction = batch.instruction
    mode, name, *words = instruction.modifiers[1:]
    space = next((_SPACES[word] for word in words if word in _SPACES), Space.GENERIC)
    target, *index, value = instruction.operands
    values = batch.read(value, np.uint64 if words[-1] == "b64" else np.uint32)
    if mode != "tile" or (name not in _FIELDS and (name not in _UNCHANGING or values.any())):
        raise UnsupportedInstruction(instruction, f".{name} of {mode}")
    if name in _UNCHANGING:
        return
    at = index[0].value if index and isinstance(index[0], Immediate) else 0
    addresses = batch.address(address_operand(instruction, target))
    for lane, address, number in zip(batch.lanes.tolist(), addresses.tolist(), values.tolist(), strict=True):
        before = _load(batch, lane, space, address)
        try:
            after = replace_field(before, _FIELDS[name], at, number)
        except TensorMapError as error:
            _refuse(batch, lane, str(error))
            continue
        _store(batch, lane, space, address, after)
        if space is not Space.SHARED:
            batch.machine.unit(ChangedMaps).change(instruction, np.array([lane]), address, released=False)


@warp_operation("tensormap.cp_fenceproxy")
def copy_and_release(warps: Warps) -> None:
    """`tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [to], [from], 128`."""
    instruction = warps.instruction
    target, source, _ = instruction.operands
    first = warps.active.argmax(axis=1)
    lanes = warps.members[np.arange(len(first)), first]
    batch = LaneBatch(warps.machine, instruction, lanes)
    targets, sources = (batch.address(address_operand(instruction, operand)) for operand in (target, source))
    for row, (lane, to, start) in enumerate(zip(lanes.tolist(), targets.tolist(), sources.tolist(), strict=True)):
        _store(batch, lane, Space.GLOBAL, to, _load(batch, lane, Space.SHARED, start))
        together = warps.members[row][warps.active[row]]
        warps.machine.unit(ChangedMaps).change(instruction, together, to, released=True)
    warps.memory.fence(warps.members[warps.active])


@lane_operation("fence.proxy.tensormap::generic")
def fence(batch: LaneBatch) -> None:
    """`fence.proxy.tensormap::generic.release.scope`, or `.acquire.scope [map], 128`."""
    maps = batch.machine.unit(ChangedMaps)
    if "release" in batch.instruction.modifiers:
        maps.release(batch.lanes)
    else:
        address: Operand = batch.instruction.operands[0]
        addresses = batch.address(address_operand(batch.instruction, address))
        for lane, where in zip(batch.lanes.tolist(), addresses.tolist(), strict=True):
            maps.acquire(lane, where)
    batch.memory.fence(batch.lanes)


def _load(batch: LaneBatch, lane: int, space: Space, address: int) -> bytes:
    lanes, site = np.array([lane]), batch.instruction.number
    halves = [
        batch.memory.load(lanes, space, np.array([address + part], np.uint64), MAP_ALIGN, site)
        for part in range(0, MAP_BYTES, MAP_ALIGN)
    ]
    return np.concatenate(halves, axis=1).tobytes()


def _store(batch: LaneBatch, lane: int, space: Space, address: int, data: bytes) -> None:
    lanes, site = np.array([lane]), batch.instruction.number
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1, MAP_ALIGN)
    for part, row in enumerate(rows):
        batch.memory.store(lanes, space, np.array([address + part * MAP_ALIGN], np.uint64), row, site)


def _refuse(batch: LaneBatch, lane: int, message: str) -> None:
    text = f"`{batch.instruction.full_opcode}`: {message}"
    batch.wave.report(FaultKind.INVALID_OPERAND, text, np.array([lane]), batch.instruction)

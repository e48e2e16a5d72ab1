"""From fault records of native code to findings: which tensor, by how many bytes, which thread was the other one."""

from __future__ import annotations

from typing import Any

from cutesmith.emulator.faults import FaultKind, Finding
from cutesmith.emulator.program.abi import SHARED_BASE, SHARED_RANK_SHIFT, Access, Context, Space
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.sanitizer import cells as cells
from cutesmith.emulator.sanitizer.layout import Fault
from cutesmith.emulator.state.allocations import Allocations
from cutesmith.emulator.state.wave import Wave

_FAR = 1 << 30  # bytes from any allocation: a wild address, no tensor is named
_READING = ("ld", "ldu", "ldmatrix")  # and what `cp.async` does to global memory
_MANY = "threads"
_VERBS = {Access.READ: "reads", Access.WRITE: "writes", Access.ATOMIC: "updates", Access.MBARRIER: "uses"}


class Explainer:
    """Puts fault records of one wave into words."""

    def __init__(self, wave: Wave, allocations: Allocations, first_serial: int) -> None:
        self._wave, self._allocations, self._first_serial = wave, allocations, first_serial

    def finding(self, record: Any) -> Finding:
        """The finding of a record; its location is that of the instruction."""
        kind, lane, site = Fault(int(record["kind"])), int(record["lane"]), int(record["site"])
        other = self._instruction(int(record["other_site"])) if record["cell"] else None
        instruction = self._instruction(site)
        return Finding(
            kind=FaultKind[kind.name],
            message=self._message(kind, record),
            location=instruction.location if instruction else None,
            thread=self._wave.thread(lane),
            block=self._wave.block(lane),
            other=other.location if other else None,
            count=int(record["count"]),
        )

    def _instruction(self, site: int) -> Instruction | None:
        known = self._wave.program.instructions
        return known[site] if site < min(len(known), cells.MAX_SITE) else None

    def _access(self, record: Any) -> str:
        """Such as "`st.global.f32` writes 4 bytes"."""
        verb, size = _VERBS[Access(int(record["access"]))], int(record["bytes"])
        instruction = self._instruction(int(record["site"]))
        name = f"`{instruction.full_opcode}`" if instruction else "the thread"
        return f"{name} {verb} {size} byte{'s' if size > 1 else ''}"

    # ---------------------------------------------------------------------------------------------- what is wrong

    def _message(self, kind: Fault, record: Any) -> str:
        address, size, space = int(record["address"]), int(record["bytes"]), Space(int(record["space"]))
        access, at = self._access(record), f"{space.name.lower()} address {address:#x}"
        if kind is Fault.OUT_OF_BOUNDS:
            return f"{access} at {at}: {self._beyond(space, address, size)}"
        if kind is Fault.MISALIGNED:
            owner = self._allocations.at(address) if space in (Space.GLOBAL, Space.CONST) else None
            inside = f" (byte {address - owner.address} of {owner.name})" if owner else ""
            needed = size & -size
            return f"{access} at {at}{inside}, which is {address % needed} past a multiple of {needed}"
        access += f" of {self._place(space, address)}"
        if kind is Fault.UNINITIALISED_READ:
            return f"{access} of which not all bytes were written"
        if kind is Fault.MISSING_WAIT:
            return f"{access} that an asynchronous copy fills, without a wait for it"
        who, other = self._other(record), self._instruction(int(record["other_site"]))
        if kind is Fault.MISSING_FENCE:
            return f"{access} that {who} has written by ordinary stores: no fence.proxy.async lies between the two"
        if cells.is_of_engine(int(record["cell"])):
            return f"{access} that {who} may still be using: nothing waits for its completion"
        reads = other is not None and (other.opcode in _READING or (other.opcode == "cp" and space is not Space.SHARED))
        verb = f"{'have' if who.startswith(_MANY) else 'has'} {'read' if reads else 'written'}"
        return f"{access} that {who} {verb}: nothing orders the two"

    def _beyond(self, space: Space, address: int, size: int) -> str:
        """How far an access is from the memory that it may have meant."""
        if space is Space.LOCAL:
            return f"the thread has {self._wave.local.shape[1]} bytes of local memory"
        if space is Space.PARAM:
            return f"the kernel has {self._wave.program.parameter_bytes} bytes of parameters, which are only read"
        if space is Space.SHARED:
            rank, offset = address >> SHARED_RANK_SHIFT, address & ((1 << SHARED_RANK_SHIFT) - 1)
            if rank >= self._wave.cluster_blocks:
                return f"block {rank} of a cluster of {self._wave.cluster_blocks}"
            end = int(self._wave.context[Context.SHARED_BYTES])
            if offset < SHARED_BASE:
                return f"{SHARED_BASE - offset} bytes before the start of the block's shared memory"
            return f"{offset + size - end} bytes past the end of the block's {end - SHARED_BASE} bytes of shared memory"
        nearest = self._allocations.nearest(address, size)
        distance = nearest.distance(address, size) if nearest else 0
        if nearest is None or abs(distance) > _FAR:
            return "no tensor is near"
        side = f"{distance} bytes past the end" if distance > 0 else f"{-distance} bytes before the start"
        element = f", elements of {nearest.element} bytes" if nearest.element > 1 else ""
        return f"{side} of {nearest.name} ({nearest.size} bytes{element})"

    def _other(self, record: Any) -> str:
        """Which threads made the other access of a race."""
        cell = int(record["cell"])
        thread, serial, wave = cells.thread_of(cell), cells.serial_of(cell), self._wave
        block = serial - self._first_serial
        in_wave = 0 <= block < len(wave.blocks)
        where = ""
        if cells.is_of_engine(cell):
            other = self._instruction(int(record["other_site"]))
            return f"the engine behind `{other.full_opcode}`" if other else "an engine"
        if block != int(wave.block_of_lane[int(record["lane"])]):
            where = f" of block {tuple(wave.blocks[block].tolist())}" if in_wave else " of another block"
        if thread < cells.MOST_THREADS:
            index = (block if in_wave else 0) * wave.threads_per_block + thread
            return f"thread {wave.thread(index)}{where}"
        if thread == cells.EVERYWHERE:
            return f"{_MANY} of several blocks"
        if thread == cells.SEVERAL:
            return f"{_MANY}{where or ' of the block'}"
        return f"{_MANY} of warp {thread - cells.WARP_WRITERS}{where}"

    def _place(self, space: Space, address: int) -> str:
        """Such as "shared memory at byte 64" or "output 0 at byte 128"."""
        if space is Space.SHARED:
            return f"shared memory at byte {(address & ((1 << SHARED_RANK_SHIFT) - 1)) - SHARED_BASE}"
        if space is Space.LOCAL:
            return f"local memory at byte {address}"
        owner = self._allocations.at(address)
        return f"{owner.name} at byte {address - owner.address}" if owner else f"global address {address:#x}"

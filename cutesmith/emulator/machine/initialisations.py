"""Initialised mbarriers, and which other warps and blocks of the cluster can know of it: only those may use them.

They learn of it as of any write, by what is released and acquired. A relaxed barrier of the cluster releases nothing;
before one, `fence.mbarrier_init.release.cluster` in the thread that initialised is enough (PTX ISA, "membar, fence").
Where one thread of a block has learnt of it, its whole block counts as knowing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.cluster_barriers import ClusterBarriers
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Instruction, Location

_RELAXED = (
    "the barrier of the cluster between was relaxed, which needs `fence.mbarrier_init.release.cluster` in the thread "
    "that initialises"
)


@dataclass(slots=True)
class _Initialisation:
    """By which lane, when, where; the `phase` of the cluster's barrier after it, and after a fence (0: no fence)."""

    lane: int
    time: int
    location: Location | None
    phase: int
    fenced: int = 0


class Initialisations(Unit):
    """The mbarriers that lanes of the wave have initialised, by host address."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._wave, self._memory = machine.wave, machine.memory
        self._known: dict[int, _Initialisation] = {}
        self._seen: set[tuple[int, int]] = set()  # mbarriers, and other blocks that know of them
        self._new: set[int] = set()  # those that no other warp of their block has used

    def initialised(self, lanes: Array, pointers: Array, instruction: Instruction) -> None:
        """These lanes have initialised the mbarriers at these host addresses."""
        if not self._memory.sanitize:
            return
        times, phases = self._memory.clocks.time_of(lanes), self._barriers.arrivals[lanes] + 1
        every = (each.tolist() for each in (lanes, pointers, times, phases))
        for lane, pointer, time, phase in zip(*every, strict=True):
            self._known[pointer] = _Initialisation(lane, time, instruction.location, phase)
        self._new.update(pointers.tolist())
        self._seen = {(pointer, block) for pointer, block in self._seen if pointer not in self._new}

    def fence(self, lanes: Array) -> None:
        """These lanes have executed `fence.mbarrier_init`."""
        if self._known:
            fencing, arrivals = set(lanes.tolist()), self._barriers.arrivals
            for known in self._known.values():
                if known.lane in fencing and not known.fenced:
                    known.fenced = int(arrivals[known.lane]) + 1

    def check(self, lanes: Array, pointers: Array, instruction: Instruction) -> None:
        """Report lanes that use an mbarrier (or let an engine do so) of whose initialisation they cannot know."""
        if self._new:
            self._check_own(lanes, pointers, instruction)
        if not self._known or self._wave.cluster_blocks == 1:
            return
        blocks = self._wave.blocks_at(pointers)
        foreign = np.flatnonzero((pointers > 0) & (blocks != self._wave.block_of_lane[lanes]))
        for index in foreign.tolist():
            pointer, block = int(pointers[index]), int(self._wave.block_of_lane[lanes[index]])
            known = self._known.get(pointer)
            if known is None or (pointer, block) in self._seen:
                continue
            waited = self._waited(block)
            if self._learnt(known, block) or 0 < known.fenced <= waited:
                self._seen.add((pointer, block))
            else:
                missing = _RELAXED if known.phase <= waited else "a barrier of the cluster is needed between"
                kind = FaultKind.MISSING_FENCE if missing == _RELAXED else FaultKind.RACE
                what = f"block {self._wave.block(int(lanes[index]))} may not know: {missing}"
                self._report(kind, what, lanes[[index]], pointer, instruction)

    def _check_own(self, lanes: Array, pointers: Array, instruction: Instruction) -> None:
        """The first use of each mbarrier by another warp of its block than the one that initialised it."""
        warp_of_lane, clocks = self.machine.warps.warp_of_lane, self._memory.clocks
        warps = warp_of_lane[lanes]
        other = (pointers[1:] != pointers[:-1]) | (warps[1:] != warps[:-1])  # of a warp its first
        for index in np.flatnonzero(np.append(len(lanes) > 0, other)).tolist():
            if (pointer := int(pointers[index])) not in self._new:
                continue
            known, lane = self._known[pointer], int(lanes[index])
            block = int(self._wave.block_of_lane[lane])
            if warps[index] == warp_of_lane[known.lane] or block != self._wave.block_of_lane[known.lane]:
                continue
            self._new.discard(pointer)
            if not (clocks.met_since(block, known.time) or 0 < known.fenced <= self._waited(block)):
                learnt, first = self._memory.known(np.array([lane])), int(self._wave.cluster_of_lane[lane])
                if learnt is not None and learnt[known.lane - first * self._wave.threads_per_block] < known.time:
                    what = f"thread {self._wave.thread(lane)} may not know: a barrier of the block is needed between"
                    self._report(FaultKind.RACE, what, lanes[[index]], pointer, instruction)

    @property
    def _barriers(self) -> ClusterBarriers:
        return self.machine.unit(ClusterBarriers)

    def _waited(self, block: int) -> int:
        """For how many phases of the cluster's barrier a thread of the block has waited."""
        threads = self._wave.threads_per_block
        return int(self._barriers.waits[block * threads : (block + 1) * threads].max())

    def _learnt(self, known: _Initialisation, block: int) -> bool:
        serial, thread = divmod(known.lane, self._wave.threads_per_block)
        clocks = self._memory.clocks
        one = (np.array([value], np.int64) for value in (clocks.first_serial + serial, thread, known.time))
        return bool(clocks.known_to_block(block, *one)[0])

    def _report(self, kind: FaultKind, what: str, lanes: Array, pointer: int, instruction: Instruction) -> None:
        place = self._wave.shared_place(pointer)
        message = f"`{instruction.full_opcode}` on the mbarrier at {place}, of whose initialisation {what}"
        self._wave.report(kind, message, lanes, instruction, other=self._known[pointer].location)

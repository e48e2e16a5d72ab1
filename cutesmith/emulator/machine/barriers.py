"""Barriers of a block (`bar`, `barrier`: sync, arrive, red; ids 0 to 15).

A barrier of a block counts warps (PTX ISA, "Parallel Synchronization and Communication Instructions"): a warp has
arrived when all its lanes that have not exited have arrived, and it counts as 32 threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.instructions import table
from cutesmith.emulator.machine.barrier_phases import BARRIERS, Arrival, Phases
from cutesmith.emulator.machine.groups import WarpMap
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.scene import Scene
from cutesmith.emulator.machine.suspensions import Suspension, Waiting
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand
from cutesmith.emulator.state.wave import Wave


@dataclass(frozen=True)
class BlockBarrier:
    """The operands of a `bar` or `barrier` instruction; `aligned` ones need whole warps."""

    action: str  # "sync", "arrive" or "red"
    aligned: bool
    id: Operand
    count: Operand | None
    reduction: str = ""  # "popc", "and" or "or"
    predicate: Operand | None = None
    result: Operand | None = None


def read_barrier(instruction: Instruction) -> BlockBarrier:
    """What a barrier instruction of a block asks for."""
    words = [word for word in instruction.modifiers if word != "cta"]
    aligned = instruction.opcode == "bar" or "aligned" in words
    operands = instruction.operands
    if words[0] != "red":
        return BlockBarrier(words[0], aligned, operands[0], operands[1] if len(operands) > 1 else None)
    result, number, *count, predicate = operands
    return BlockBarrier("red", aligned, number, count[0] if count else None, words[1], predicate, result)


def arrives_only(instruction: Instruction) -> bool:
    """Whether the instruction lets a warp arrive at a barrier of its block and run ahead."""
    words = instruction.modifiers
    return instruction.opcode in ("bar", "barrier") and "arrive" in words and "cluster" not in words


class _Barriers(Unit):
    """The state of the barriers of a wave's blocks."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._wave, self._warps = machine.wave, machine.warps
        self.phases = Phases(machine)
        self._read: dict[int, BlockBarrier] = {}

    def execute(self, group: Sequence[Waiting]) -> list[Array | None]:
        """Count arrivals, write results, and return which of the lanes that wait at barriers go on."""
        barrier, lanes = self._barrier_of(group[0]), group[0].lanes
        plain = barrier.action == "sync" and barrier.count is None and barrier.id == Immediate(0)
        alone = len(group) == 1 and len(lanes) == self._wave.lane_count
        if alone and plain and not self._warps.ended and not self.phases.passed_by:  # the common case
            self.phases.all_pass()
            self.machine.memory.synchronise_blocks(np.arange(len(self._wave.blocks)))
            return [None]
        found = _Round(self._wave, self._warps)
        for waiting in group:
            found.add(waiting, self._barrier_of(waiting))
        found.settle()
        passing = self._passing(found, {waiting.point.number: waiting.instruction for waiting in group})
        self._report_divergence(found, passing, group)
        goes_on = np.zeros(self._wave.lane_count, bool)
        goes_on[self._wave.members[passing][self._warps.live[passing]]] = True
        self._reduce(found, [(self._barrier_of(waiting), waiting.lanes[goes_on[waiting.lanes]]) for waiting in group])
        return [goes_on[waiting.lanes] for waiting in group]

    def finish(self) -> None:
        self.phases.finish()

    def _barrier_of(self, waiting: Waiting) -> BlockBarrier:
        """The barrier instruction of a suspension point, read once."""
        number = waiting.point.number
        if number not in self._read:
            self._read[number] = read_barrier(waiting.instruction)
        return self._read[number]

    def _passing(self, found: _Round, instructions: dict[int, Instruction]) -> Array:
        """The rows of warps that go on: those that only arrive, and those whose phase is over.

        Of warps that come in one round those that only arrive count first.
        """
        passing = [found.rows(arrives=True)]
        sites = self._warps.by_warp(found.site, -1).max(axis=1).tolist()
        counts, arrives = found.count.tolist(), found.arrives.tolist()
        alive = np.bincount(self._warps.block_of_warp, self._warps.live.any(axis=1), len(self._wave.blocks))
        for key, rows in found.by_barrier():
            new = rows[~self.phases.waits[rows]].tolist()
            arrivals = [Arrival(row, counts[row], not arrives[row], instructions[sites[row]]) for row in new]
            if over := self.phases.count(key, arrivals, int(alive[key // BARRIERS])):
                passing.append(np.array(over, np.int64))
        return np.concatenate(passing)

    def _report_divergence(self, found: _Round, passing: Array, group: Sequence[Waiting]) -> None:
        """Report aligned barriers that a warp does not reach as a whole, as compute-sanitizer's synccheck does."""
        live, exists = self._warps.live[passing], self._warps.exists[passing]
        sites = np.where(live, self._warps.by_warp(found.site, -1)[passing], -1)
        apart = (live & (sites != sites.max(axis=1, keepdims=True))).any(axis=1)
        by_number = {waiting.point.number: waiting for waiting in group}
        for row in np.flatnonzero(apart | (exists & ~live).any(axis=1)):
            waiting = by_number[int(sites[row].max())]
            if self._barrier_of(waiting).aligned:
                lanes = self._wave.members[passing[row]][live[row]]
                there = "wait at other barriers" if apart[row] else "have exited"
                message = f"`{waiting.instruction.full_opcode}` by a part of a warp: other threads of it {there}"
                self._wave.report(FaultKind.DIVERGENT_BARRIER, message, lanes, waiting.instruction)

    def _reduce(self, found: _Round, released: list[tuple[BlockBarrier, Array]]) -> None:
        """Write what `red` gives: the predicate counted, and-ed or or-ed over the threads of the barrier."""
        ended = [(barrier, lanes) for barrier, lanes in released if barrier.action == "red" and len(lanes)]
        keys = len(self._wave.blocks) * BARRIERS
        trues, threads = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        for barrier, lanes in ended:
            assert barrier.predicate is not None
            values = self._wave.read(barrier.predicate, lanes, np.bool_)
            trues += np.bincount(found.lane_key[lanes], weights=values, minlength=keys).astype(np.int64)
            threads += np.bincount(found.lane_key[lanes], minlength=keys)
        results = {"popc": trues.astype(np.uint32), "and": trues == threads, "or": trues > 0}
        for barrier, lanes in ended:
            assert barrier.result is not None
            self._wave.write(barrier.result, lanes, results[barrier.reduction][found.lane_key[lanes]])


class _Round:
    """The lanes that wait at barriers of blocks in one round: collected by lane, then by warp.

    By warp, once settled: `key` (block * 16 + id, -1 for a warp that has not arrived as a whole), `count` (threads
    asked for, 0 for all), `arrives` (does not wait). By lane: `lane_key`, `site` (number of the suspension point), -1
    for none.
    """

    def __init__(self, wave: Wave, warps: WarpMap) -> None:
        self._wave, self._warps = wave, warps
        self.lane_key = np.full(wave.lane_count, -1, np.int64)
        self.site = np.full(wave.lane_count, -1, np.int64)
        self._count = np.zeros(wave.lane_count, np.int64)
        self._arrives = np.zeros(wave.lane_count, bool)

    def add(self, waiting: Waiting, barrier: BlockBarrier) -> None:
        """Add the lanes that wait at one suspension point."""
        lanes, instruction = waiting.lanes, waiting.instruction
        ids = self._value(barrier.id, lanes)
        wrong = ids >= BARRIERS
        if wrong.any():
            message = f"barrier {int(ids[wrong][0])}: a block has barriers 0 to {BARRIERS - 1}"
            self._wave.report(FaultKind.INVALID_OPERAND, message, lanes[wrong], instruction)
            ids = np.where(wrong, 0, ids)
        self.lane_key[lanes] = self._wave.block_of_lane[lanes].astype(np.int64) * BARRIERS + ids
        self.site[lanes] = waiting.point.number
        self._arrives[lanes] = barrier.action == "arrive"
        if barrier.count is not None:
            counts = self._value(barrier.count, lanes)
            self._count[lanes] = counts
            uneven = lanes[(counts % WARP != 0) | (counts == 0)]
            if len(uneven):
                message = f"barrier for {int(self._count[uneven[0]])} threads: a multiple of {WARP} is needed"
                self._wave.report(FaultKind.INVALID_OPERAND, message, uneven, instruction)

    def settle(self) -> None:
        """Find the warps that have arrived as a whole."""
        token = np.where(self.lane_key >= 0, 2 * self.lane_key + self._arrives, -1)
        tokens = self._warps.by_warp(token, -1)
        first = tokens.max(axis=1)
        whole = (first >= 0) & ((tokens == first[:, None]) | ~self._warps.live).all(axis=1)
        self.key = np.where(whole, first >> 1, -1)
        self.arrives = whole & (first & 1).astype(bool)
        self.count = self._warps.by_warp(self._count, 0).max(axis=1)

    def by_barrier(self) -> Iterator[tuple[int, Array]]:
        """Each barrier, by key, and the warps there: first those that only arrive."""
        there = np.flatnonzero(self.key >= 0)
        there = there[np.lexsort((~self.arrives[there], self.key[there]))]
        starts = np.flatnonzero(np.diff(self.key[there], prepend=-1))
        for rows in np.split(there, starts[1:]) if len(there) else ():
            yield int(self.key[rows[0]]), rows

    def rows(self, *, arrives: bool) -> Array:
        """The warps that have arrived as a whole, without or with waiting."""
        return np.flatnonzero((self.key >= 0) & (self.arrives == arrives))

    def _value(self, operand: Operand, lanes: Array) -> Array:
        return self._wave.read(operand, lanes).astype(np.int64)


class BlockBarrierSuspension(Suspension):
    """Barriers of blocks: all of them together, since warps may wait for each other at different instructions."""

    turn: ClassVar[int] = 1
    together: ClassVar[bool] = True
    whole_warps: ClassVar[bool] = True

    def version(self, machine: Machine) -> int | None:
        return machine.warps.ended

    def execute(self, machine: Machine, group: Sequence[Waiting]) -> list[Array | None]:
        return machine.unit(_Barriers).execute(group)

    def reason(self, scene: Scene, instruction: Instruction, lanes: Array) -> str:
        wave, warps, barrier = scene.machine.wave, scene.machine.warps, read_barrier(instruction)
        number = int(wave.read(barrier.id, lanes[:1])[0])
        block = int(wave.block_of_lane[lanes[0]])
        count = int(wave.read(barrier.count, lanes[:1])[0]) if barrier.count is not None else 0
        expected = count or int(warps.exists[warps.block_of_warp == block].sum())
        phases = scene.machine.unit(_Barriers).phases
        arrived = len(lanes) + phases.arrived_without_waiting(block * BARRIERS + number % BARRIERS)
        absent = scene.places(np.setdiff1d(np.flatnonzero(wave.block_of_lane == block), lanes))
        return f"for barrier {number}, where {arrived} of {expected} threads have arrived: {absent}"


table.register(BlockBarrierSuspension(), "{bar,barrier}{,.cta}.{sync,arrive,red.popc,red.and,red.or}")

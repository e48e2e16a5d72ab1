"""Barriers of a block (`bar`, `barrier`: sync, arrive, red; ids 0 to 15) and of a cluster (`barrier.cluster`).

As the PTX ISA has it ("Parallel Synchronization and Communication Instructions"), a barrier of a block counts warps: a
warp has arrived when all its threads that have not exited are there, and counts 32 threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.machine.groups import WarpMap
from cutesmith.emulator.machine.lanes import WARP, Array
from cutesmith.emulator.machine.wave import Wave
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand

BARRIERS = 16
Waiting = dict[int, tuple[Instruction, Array]]  # by the stop's number
Released = dict[int, Array]  # bool: which of those lanes go on


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


def is_cluster_barrier(instruction: Instruction) -> bool:
    """Whether the instruction is `barrier.cluster.arrive` or `.wait`."""
    return instruction.modifiers[:1] == ("cluster",)


def read_barrier(instruction: Instruction) -> BlockBarrier:
    """What a barrier instruction of a block asks for."""
    words = [word for word in instruction.modifiers if word != "cta"]
    aligned = instruction.opcode == "bar" or "aligned" in words
    operands = instruction.operands
    if words[0] != "red":
        return BlockBarrier(words[0], aligned, operands[0], operands[1] if len(operands) > 1 else None)
    result, number, *count, predicate = operands
    return BlockBarrier("red", aligned, number, count[0] if count else None, words[1], predicate, result)


class Barriers:
    """The state of every barrier of a wave."""

    def __init__(self, wave: Wave, warps: WarpMap) -> None:
        self._wave = wave
        self._warps = warps
        keys = len(wave.blocks) * BARRIERS
        self.arrived = np.zeros(keys, np.int64)  # threads counted by `arrive` in this phase
        self.expected = np.zeros(keys, np.int64)  # thread count last asked for; 0: the whole block
        self._arrived_lanes: dict[int, list[Array]] = {}
        self.cluster_arrivals = np.zeros(wave.lane_count, np.int64)
        self.cluster_waits = np.zeros(wave.lane_count, np.int64)
        self._read: dict[int, BlockBarrier] = {}

    def execute(self, waiting: Waiting) -> Released:
        """Which of the lanes that wait at barrier instructions go on; arrivals are counted, results written."""
        ours = {number: entry for number, entry in waiting.items() if not is_cluster_barrier(entry[0])}
        released = self._whole_wave(ours) or (self._execute_blocks(ours) if ours else {})
        clusters = {number: entry for number, entry in waiting.items() if number not in ours}
        return released | self._execute_clusters(clusters)

    def barrier_of(self, number: int, instruction: Instruction) -> BlockBarrier:
        """The barrier instruction of a stop, read once."""
        if number not in self._read:
            self._read[number] = read_barrier(instruction)
        return self._read[number]

    def _whole_wave(self, waiting: Waiting) -> Released | None:
        """The common case: every live lane of the wave at one plain `bar.sync`."""
        if len(waiting) != 1:
            return None
        ((number, (instruction, lanes)),) = waiting.items()
        barrier = self.barrier_of(number, instruction)
        plain = barrier.action == "sync" and barrier.count is None and barrier.id == Immediate(0)
        if not plain or self._warps.ended or len(lanes) != self._wave.lane_count or self.arrived.any():
            return None
        self._wave.memory.synchronise_blocks(np.arange(len(self._wave.blocks)))
        return {number: np.ones(len(lanes), bool)}

    def _execute_blocks(self, waiting: Waiting) -> Released:
        found = _Round(self._wave, self._warps)
        for number, (instruction, lanes) in waiting.items():
            found.add(number, instruction, self.barrier_of(number, instruction), lanes)
        found.settle()
        passing = self._passing(found)
        self._report_divergence(found, passing, waiting)
        self._order(found, passing)
        goes_on = np.zeros(self._wave.lane_count, bool)
        goes_on[self._wave.members[passing][self._warps.live[passing]]] = True
        released = {number: goes_on[lanes] for number, (_, lanes) in waiting.items()}
        self._reduce(found, waiting, released)
        return released

    def _passing(self, found: _Round) -> Array:
        """The rows of warps that go on: those that only arrive, and those whose barrier is complete."""
        arriving = found.rows(arrives=True)
        for row in arriving:
            key = int(found.key[row])
            self.arrived[key] += WARP
            self.expected[key] = found.count[row]
            members = self._wave.members[row]
            self._arrived_lanes.setdefault(key, []).append(members[self._warps.live[row]])
        self._arrivals_alone()
        waiting = found.rows(arrives=False)
        passing = [waiting[found.key[waiting] == key][: self._room(found, waiting, key)]
                   for key in np.unique(found.key[waiting])]  # fmt: skip
        return np.concatenate([arriving, *passing])

    def _arrivals_alone(self) -> None:
        """A phase that only `arrive` completes."""
        over = (self.expected > 0) & (self.arrived > self.expected)
        self.arrived[over] -= self.expected[over]

    def _room(self, found: _Round, waiting: Array, key: int) -> int:
        """How many of the warps that wait at a barrier pass it now; its phase ends when any do."""
        rows = waiting[found.key[waiting] == key]
        count = int(found.count[rows].max())
        if not count:
            block_warps = self._warps.block_of_warp == key // BARRIERS
            return len(rows) if len(rows) == np.count_nonzero(self._warps.live[block_warps].any(axis=1)) else 0
        self.expected[key] = count
        missing = max(0, count - int(self.arrived[key]))
        if len(rows) * WARP < missing:
            return 0
        self.arrived[key] = max(0, int(self.arrived[key]) - count)
        return -(-missing // WARP) if missing else len(rows)

    def _report_divergence(self, found: _Round, passing: Array, waiting: Waiting) -> None:
        """An aligned barrier asks for the whole warp, at one instruction: what compute-sanitizer's synccheck tells."""
        live, exists = self._warps.live[passing], self._warps.exists[passing]
        sites = np.where(live, self._warps.by_warp(found.site, -1)[passing], -1)
        apart = (live & (sites != sites.max(axis=1, keepdims=True))).any(axis=1)
        for row in np.flatnonzero(apart | (exists & ~live).any(axis=1)):
            instruction = waiting[int(sites[row].max())][0]
            if self.barrier_of(int(sites[row].max()), instruction).aligned:
                lanes = self._wave.members[passing[row]][live[row]]
                there = "wait at other barriers" if apart[row] else "have exited"
                message = f"`{instruction.full_opcode}` by a part of a warp: other threads of it {there}"
                self._wave.report("divergent_barrier", message, lanes, instruction)

    def _order(self, found: _Round, passing: Array) -> None:
        """Tell memory which lanes have synchronised."""
        rows = passing[~found.arrives[passing]]
        for key in np.unique(found.key[rows]):
            mine = rows[found.key[rows] == key]
            lanes = [self._wave.members[mine][self._warps.live[mine]], *self._arrived_lanes.pop(int(key), [])]
            self._wave.memory.synchronise_lanes(np.concatenate(lanes))

    def _reduce(self, found: _Round, waiting: Waiting, released: Released) -> None:
        """Write what `red` gives: the predicate counted, and-ed or or-ed over the threads of the barrier."""
        ended = []
        for number, (instruction, lanes) in waiting.items():
            barrier = self.barrier_of(number, instruction)
            if barrier.action == "red" and released[number].any():
                ended.append((barrier, lanes[released[number]]))
        keys = len(self.arrived)
        trues, threads = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        for barrier, lanes in ended:
            assert barrier.predicate is not None
            values = self._wave.read(barrier.predicate, lanes, np.dtype(np.bool_))
            trues += np.bincount(found.lane_key[lanes], weights=values, minlength=keys).astype(np.int64)
            threads += np.bincount(found.lane_key[lanes], minlength=keys)
        results = {"popc": trues.astype(np.uint32), "and": trues == threads, "or": trues > 0}
        for barrier, lanes in ended:
            assert barrier.result is not None
            self._wave.write(barrier.result, lanes, results[barrier.reduction][found.lane_key[lanes]])

    def _execute_clusters(self, waiting: Waiting) -> Released:
        released: Released = {}
        for number, (instruction, lanes) in waiting.items():
            if "arrive" in instruction.modifiers:
                self._arrive_cluster(instruction, lanes)
                released[number] = np.ones(len(lanes), bool)
        phase = self._advance_clusters()
        for number, (_, lanes) in waiting.items():
            if number not in released:
                released[number] = self._wait_cluster(lanes, phase)
        return released

    def _arrive_cluster(self, instruction: Instruction, lanes: Array) -> None:
        twice = lanes[self.cluster_arrivals[lanes] > self.cluster_waits[lanes]]
        if len(twice):
            message = "barrier.cluster.arrive twice without barrier.cluster.wait between"
            self._wave.report("invalid_operand", message, twice, instruction)
        self.cluster_arrivals[lanes] += 1
        if "relaxed" not in instruction.modifiers:
            self._wave.memory.release_cluster(lanes)

    def _advance_clusters(self) -> Array:
        """How often the barrier of each lane's cluster has completed: its slowest live lane decides."""
        arrivals = np.full(self._wave.lane_count, np.iinfo(np.int64).max)
        live = self._wave.members[self._warps.live]
        arrivals[live] = self.cluster_arrivals[live]
        starts = np.flatnonzero(np.diff(self._wave.cluster_of_lane.astype(np.int64), prepend=-1))
        counts = np.diff(np.append(starts, self._wave.lane_count))
        return np.repeat(np.minimum.reduceat(arrivals, starts), counts)

    def _wait_cluster(self, lanes: Array, phase: Array) -> Array:
        own = self.cluster_arrivals[lanes]  # a thread that has not arrived itself waits forever
        done: Array = (phase[lanes] >= own) & (own > self.cluster_waits[lanes])
        self.cluster_waits[lanes[done]] += 1
        if done.any():
            self._wave.memory.acquire_cluster(lanes[done])
        return done


class _Round:
    """Who stands at the barriers of blocks, by lane while it is collected and then by warp.

    By warp, once settled: `key` (block * 16 + id, -1 for a warp that has not arrived as a whole), `count` (threads
    asked for, 0 for all), `arrives` (does not wait). By lane: `lane_key`, `site` (the stop's number), -1 for none.
    """

    def __init__(self, wave: Wave, warps: WarpMap) -> None:
        self._wave, self._warps = wave, warps
        self.lane_key = np.full(wave.lane_count, -1, np.int64)
        self.site = np.full(wave.lane_count, -1, np.int64)
        self._count = np.zeros(wave.lane_count, np.int64)
        self._arrives = np.zeros(wave.lane_count, bool)

    def add(self, number: int, instruction: Instruction, barrier: BlockBarrier, lanes: Array) -> None:
        """Lanes that stand at one stop."""
        ids = self._checked(self._value(barrier.id, lanes), lanes, instruction)
        self.lane_key[lanes] = self._wave.block_of_lane[lanes].astype(np.int64) * BARRIERS + ids
        self.site[lanes] = number
        self._arrives[lanes] = barrier.action == "arrive"
        if barrier.count is not None:
            counts = self._value(barrier.count, lanes)
            self._count[lanes] = counts
            uneven = lanes[(counts % WARP != 0) | (counts == 0)]
            if len(uneven):
                message = f"barrier for {int(self._count[uneven[0]])} threads: a multiple of {WARP} is needed"
                self._wave.report("invalid_operand", message, uneven, instruction)

    def settle(self) -> None:
        """Find the warps that have arrived as a whole."""
        token = np.where(self.lane_key >= 0, 2 * self.lane_key + self._arrives, -1)
        tokens = self._warps.by_warp(token, -1)
        first = tokens.max(axis=1)
        whole = (first >= 0) & ((tokens == first[:, None]) | ~self._warps.live).all(axis=1)
        self.key = np.where(whole, first >> 1, -1)
        self.arrives = whole & (first & 1).astype(bool)
        self.count = self._warps.by_warp(self._count, 0).max(axis=1)

    def rows(self, *, arrives: bool) -> Array:
        """The warps that have arrived as a whole, without or with waiting."""
        return np.flatnonzero((self.key >= 0) & (self.arrives == arrives))

    def _value(self, operand: Operand, lanes: Array) -> Array:
        return self._wave.read(operand, lanes, np.dtype(np.uint32)).astype(np.int64)

    def _checked(self, ids: Array, lanes: Array, instruction: Instruction) -> Array:
        wrong = ids >= BARRIERS
        if wrong.any():
            message = f"barrier {int(ids[wrong][0])}: a block has barriers 0 to {BARRIERS - 1}"
            self._wave.report("invalid_operand", message, lanes[wrong], instruction)
        return np.where(wrong, 0, ids)

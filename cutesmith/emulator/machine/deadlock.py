"""Why nothing can go on: which warps wait at which line for what, and where those are that they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.faults import Finding
from cutesmith.emulator.machine.barriers import BARRIERS, Barriers, is_cluster_barrier, read_barrier
from cutesmith.emulator.machine.findings import where
from cutesmith.emulator.machine.groups import WarpMap
from cutesmith.emulator.machine.lanes import Array
from cutesmith.emulator.machine.wave import Wave
from cutesmith.emulator.operations.message_barriers import waits_for
from cutesmith.emulator.ptx.syntax import Instruction

_MOST_PLACES = 6


@dataclass(frozen=True)
class Waiting:
    """The lanes that wait at one stop; `kind` as in the scheduler's plans."""

    instruction: Instruction
    kind: str
    lanes: Array


def explain(wave: Wave, warps: WarpMap, barriers: Barriers, waiting: list[Waiting]) -> Iterator[tuple[Finding, int]]:
    """Findings with their instruction numbers: a deadlock for each stop, and barriers that a part of a warp reached."""
    scene = _Scene(wave, warps, barriers, waiting)
    for entry in waiting:
        yield scene.deadlock(entry), entry.instruction.number
    for entry in waiting:
        if entry.kind == "barrier" and not is_cluster_barrier(entry.instruction):
            yield from ((finding, entry.instruction.number) for finding in scene.divergence(entry))


class _Scene:
    """Where every lane is once all of them wait."""

    def __init__(self, wave: Wave, warps: WarpMap, barriers: Barriers, waiting: list[Waiting]) -> None:
        self._wave, self._warps, self._barriers, self._waiting = wave, warps, barriers, waiting
        self._place = np.full(wave.lane_count, -1)  # index of `waiting`; -1: exited
        for index, entry in enumerate(waiting):
            self._place[entry.lanes] = index

    def deadlock(self, entry: Waiting) -> Finding:
        """What those who wait at one stop wait for; one block stands for the others."""
        block = self._wave.block_of_lane[entry.lanes[0]]
        mine = entry.lanes[self._wave.block_of_lane[entry.lanes] == block]
        blocks = len(np.unique(self._wave.block_of_lane[entry.lanes]))
        alike = f" ({blocks - 1} more blocks do too)" if blocks > 1 else ""
        opcode = entry.instruction.full_opcode
        text = f"deadlock: {self._who(mine)} of block {self._wave.block(int(mine[0]))} wait at `{opcode}`{alike}"
        return self._finding("deadlock", f"{text} {self._reason(entry, mine)}", entry, mine)

    def divergence(self, entry: Waiting) -> Iterator[Finding]:
        """The first warp of which a part waits at this barrier and another part elsewhere."""
        here = self._warps.spread(entry.lanes)
        elsewhere = self._warps.live & ~here
        split = np.flatnonzero(here.any(axis=1) & elsewhere.any(axis=1))
        if len(split):
            lanes, others = (self._wave.members[split[0]][part[split[0]]] for part in (here, elsewhere))
            text = f"`{entry.instruction.full_opcode}` by a part of a warp: {self._places(others)}"
            yield self._finding("divergent_barrier", text, entry, lanes, count=len(split))

    def _finding(self, kind: str, text: str, entry: Waiting, lanes: Array, count: int = 0) -> Finding:
        lane = int(lanes[0])
        location, count = entry.instruction.location, count or len(entry.lanes)
        return Finding(kind, text, location, self._wave.thread(lane), self._wave.block(lane), count=count)

    def _reason(self, entry: Waiting, lanes: Array) -> str:
        if entry.kind == "warp":
            return f"for the rest of their warp: {self._places(self._rest_of_warps(lanes))}"
        if entry.instruction.opcode == "mbarrier":
            return waits_for(self._wave, entry.instruction, int(lanes[0]))
        if entry.kind != "barrier":
            return "for what never happens"
        if is_cluster_barrier(entry.instruction):
            return self._cluster_reason(lanes)
        return self._barrier_reason(entry.instruction, lanes)

    def _barrier_reason(self, instruction: Instruction, lanes: Array) -> str:
        barrier = read_barrier(instruction)
        ids = self._wave.read(barrier.id, lanes[:1], np.dtype(np.uint32))
        block = int(self._wave.block_of_lane[lanes[0]])
        count = 0
        if barrier.count is not None:
            count = int(self._wave.read(barrier.count, lanes[:1], np.dtype(np.uint32))[0])
        in_block = np.flatnonzero(self._wave.block_of_lane == block)
        expected = count or int(self._warps.exists[self._warps.block_of_warp == block].sum())
        arrived = len(lanes) + int(self._barriers.arrived[block * BARRIERS + int(ids[0]) % BARRIERS])
        absent = np.setdiff1d(in_block, lanes)
        return f"for barrier {int(ids[0])}, where {arrived} of {expected} threads have arrived: {self._places(absent)}"

    def _cluster_reason(self, lanes: Array) -> str:
        if self._barriers.cluster_arrivals[lanes[0]] == self._barriers.cluster_waits[lanes[0]]:
            return "without barrier.cluster.arrive before"
        same = self._wave.cluster_of_lane == self._wave.cluster_of_lane[lanes[0]]
        arrivals = self._barriers.cluster_arrivals
        late = np.flatnonzero(same & (arrivals < arrivals[lanes[0]]) & (self._place >= 0))
        blocks = sorted({self._wave.block(int(lane)) for lane in late[:: max(1, len(late) // 64)]})
        return (
            f"for the cluster, of which threads of {', '.join(map(str, blocks))} have not arrived: {self._places(late)}"
        )

    def _rest_of_warps(self, lanes: Array) -> Array:
        rows = np.unique(self._warps.warp_of_lane[lanes])
        members = self._wave.members[rows]
        return np.setdiff1d(members[members >= 0], lanes)

    def _places(self, lanes: Array) -> str:
        """Where these lanes are, as "warp 2 waits at kernel.py:30, warp 3 has exited"."""
        if not len(lanes):
            return "all others are there"
        texts = []
        for index in np.unique(self._place[lanes])[::-1]:
            who = self._who(lanes[self._place[lanes] == index])
            if index < 0:
                texts.append(f"{who} have exited")
            else:
                texts.append(f"{who} wait at {where(self._waiting[index].instruction.location)}")
        more = f" and {len(texts) - _MOST_PLACES} more places" if len(texts) > _MOST_PLACES else ""
        return ", ".join(texts[:_MOST_PLACES]) + more

    def _who(self, lanes: Array) -> str:
        """Whole warps as "warps 0-3", parts of warps with their lanes, of the block of the first lane."""
        block = self._wave.block_of_lane[lanes[0]]
        present = self._warps.spread(lanes[self._wave.block_of_lane[lanes] == block])
        first = int(np.flatnonzero(self._warps.block_of_warp == block)[0])
        rows = np.flatnonzero(present.any(axis=1))
        whole = (present[rows] == self._warps.exists[rows]).all(axis=1)
        texts = [f"warps {ranges(rows[whole] - first)}"] if whole.any() else []
        for row in rows[~whole][: _MOST_PLACES - len(texts)]:
            texts.append(f"lanes {ranges(np.flatnonzero(present[row]))} of warp {row - first}")
        return ", ".join(texts)


def ranges(numbers: Array) -> str:
    """Ascending numbers as "0-3, 7"."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)

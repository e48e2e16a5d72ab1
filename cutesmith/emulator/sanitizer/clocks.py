"""Happens-before of a wave: what barriers, fences and mbarriers tell the race check (sanitizer/happens_before.py).

Time is one counter a cluster. An access bears the time at which it is made; a synchronisation moves the time on, so
that "before the barrier" is "with a smaller time". No rule here may cause a false alarm; each may miss a race.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from cutesmith.emulator.program.abi import EXITED, WARP, Array
from cutesmith.emulator.sanitizer.cells import MAX_SERIAL, MAX_TIME
from cutesmith.emulator.sanitizer.layout import Sanitizer
from cutesmith.emulator.state.wave import Wave

_MOST_EXACT = 4096  # lanes of a cluster for which what each knows of each is kept (64 MB)


class LaunchClocks:
    """What lasts longer than a wave: who has released and acquired, by serial number of the block."""

    def __init__(self) -> None:
        self.sequence = np.zeros(1, np.int64)
        self.next_serial = 1
        self.released = np.zeros((1, 2), np.uint32)
        self.fenced = np.zeros(1, np.uint32)
        self.acquired = np.zeros(1, np.uint32)

    def take_serials(self, blocks: int) -> int:
        """The first of `blocks` consecutive serial numbers; after 2^20 blocks they begin again."""
        if self.next_serial + blocks > MAX_SERIAL:
            self.next_serial = 1
        first, self.next_serial = self.next_serial, self.next_serial + blocks
        missing = self.next_serial - len(self.fenced)
        if missing > 0:
            missing += len(self.fenced)
            self.released = np.pad(self.released, ((0, missing), (0, 0)))
            self.fenced = np.pad(self.fenced, (0, missing))
            self.acquired = np.pad(self.acquired, (0, missing))
        return first


class Clocks:
    """The order of a wave's accesses. Lanes are indices into the wave, of any blocks unless a method says otherwise."""

    def __init__(self, wave: Wave, launch: LaunchClocks) -> None:
        blocks, lanes = len(wave.blocks), wave.lane_count
        self._wave, self._launch = wave, launch
        self.first_serial = launch.take_serials(blocks)
        self._threads, self._cluster = wave.threads_per_block, wave.cluster_blocks
        self._width = self._threads * self._cluster
        self._exact = self._width <= _MOST_EXACT
        self.time = np.ones(blocks, np.int64)
        self._block_base = np.ones(blocks, np.int64)
        self._cluster_base = np.ones(blocks, np.int64)
        self._warp_base = np.ones(lanes, np.int64)
        self._lane_released = np.zeros((lanes, 2), np.uint32)
        self._lane_fenced = np.zeros(lanes, np.uint32)
        self._lane_acquired = np.zeros(lanes, np.uint32)
        self._knowledge: dict[int, Array] = {}  # by first block of the cluster
        self._knowledge_pointers = np.zeros(blocks, np.int64)
        self._objects: dict[tuple[int, Hashable], Array] = {}
        self._cluster_released = np.zeros(blocks, np.int64)

    def fill(self, context: Array) -> None:
        """Write the words of the context that are of order."""
        arrays: dict[Sanitizer, Array] = {
            Sanitizer.TIME: self.time,
            Sanitizer.BLOCK_BASE: self._block_base,
            Sanitizer.CLUSTER_BASE: self._cluster_base,
            Sanitizer.WARP_BASE: self._warp_base,
            Sanitizer.KNOWLEDGE: self._knowledge_pointers,
            Sanitizer.SEQUENCE: self._launch.sequence,
            Sanitizer.LANE_RELEASED: self._lane_released,
            Sanitizer.LANE_FENCED: self._lane_fenced,
            Sanitizer.LANE_ACQUIRED: self._lane_acquired,
            Sanitizer.BLOCK_RELEASED: self._launch.released,
            Sanitizer.BLOCK_FENCED: self._launch.fenced,
            Sanitizer.BLOCK_ACQUIRED: self._launch.acquired,
        }
        for word, array in arrays.items():
            context[word] = array.ctypes.data
        context[Sanitizer.FIRST_SERIAL] = self.first_serial
        context[Sanitizer.THREADS] = self._threads

    def time_of(self, lanes: Array) -> Array:
        """The time of an access by each lane now."""
        times: Array = self.time[self._wave.cluster_of_lane[lanes]]
        return times

    def serial_of(self, lanes: Array) -> Array:
        """The serial number of each lane's block."""
        return self.first_serial + self._wave.block_of_lane[lanes].astype(np.int64)

    # ------------------------------------------------------------------------------------------- barriers and fences

    def synchronise_blocks(self, blocks: Array) -> None:
        """All lanes of each of these blocks have met."""
        firsts = blocks // self._cluster * self._cluster
        self._advance(firsts)
        self._block_base[blocks] = self.time[firsts]
        self._lane_released.reshape(-1, self._threads, 2)[blocks] = 0
        if self._knowledge:
            for block, first in zip(blocks.tolist(), firsts.tolist(), strict=True):
                if self._cluster == 1:  # with one block the base says it all
                    self._knowledge.pop(first, None)
                    self._knowledge_pointers[first] = 0
                elif first in self._knowledge:
                    start = (block - first) * self._threads
                    rows = self._knowledge[first][start : start + self._threads]
                    rows[:] = rows.max(axis=0)

    def synchronise_lanes(self, lanes: Array) -> None:
        """These lanes of one block have met; lanes that have exited count as if they had been there."""
        block = int(self._wave.block_of_lane[lanes[0]])
        present = np.zeros(self._threads, bool)
        present[lanes - block * self._threads] = True
        present |= self._wave.status[block * self._threads : (block + 1) * self._threads] == EXITED
        if present.all():
            self.synchronise_blocks(np.array([block]))
            return
        first = block // self._cluster * self._cluster
        if not self._exact:
            self._learn_all(first)
            return
        met = self._know(first, lanes).max(axis=0)
        self._learn(first, lanes, met)
        self._advance(np.array([first]))

    def synchronise_warps(self, members: Array, active: Array) -> None:
        """The active lanes of each warp have met at `bar.warp.sync`; `members`, `active` as in lanes.Warps."""
        lanes = members[active]
        firsts = np.unique(self._wave.cluster_of_lane[lanes]).astype(np.int64)
        for met in (row[present] for row, present in zip(members, active, strict=True)) if self._knowledge else ():
            if (first := int(self._wave.cluster_of_lane[met[0]])) in self._knowledge:
                self._learn(first, met, self._know(first, met).max(axis=0))
        self._advance(firsts)
        self._warp_base[lanes] = self.time_of(lanes)

    def fence(self, lanes: Array) -> None:
        """A fence of any scope: later strong writes release what came before it."""
        self._lane_fenced[lanes] = self.time_of(lanes)
        self._launch.fenced[self.serial_of(lanes)] = self.time_of(lanes)
        self.release_cluster(lanes)

    def release_cluster(self, lanes: Array) -> None:
        """Arrival at the cluster's barrier."""
        firsts = np.unique(self._wave.cluster_of_lane[lanes]).astype(np.int64)
        self._cluster_released[firsts] = self.time[firsts]
        self._advance(firsts)

    def acquire_cluster(self, lanes: Array) -> None:
        """The cluster's barrier is over, so all had arrived: what came before the last release is ordered."""
        firsts = np.unique(self._wave.cluster_of_lane[lanes]).astype(np.int64)
        blocks = (firsts[:, None] + np.arange(self._cluster)).ravel()
        base = np.repeat(self._cluster_released[firsts] + 1, self._cluster)
        self._cluster_base[blocks] = np.maximum(self._cluster_base[blocks], base)
        self._block_base[blocks] = np.maximum(self._block_base[blocks], base)

    # ----------------------------------------------------------------------------------------------- mbarriers

    def release(self, lanes: Array, key: Hashable) -> None:
        """What these lanes of one cluster did, and know of, comes before what acquirers of `key` do next."""
        first = int(self._wave.cluster_of_lane[lanes[0]])
        if not self._exact:
            return
        known = self._know(first, lanes).max(axis=0)
        before = self._objects.get((first, key))
        self._objects[first, key] = known if before is None else np.maximum(before, known)
        self._advance(np.array([first]))

    def acquire(self, lanes: Array, key: Hashable) -> None:
        """These lanes of one cluster have seen what was released to `key`."""
        first = int(self._wave.cluster_of_lane[lanes[0]])
        known = self._objects.get((first, key))
        if not self._exact:
            self._learn_all(first)
        elif known is not None:
            self._learn(first, lanes, known)

    def _know(self, first: int, lanes: Array) -> Array:
        """int32 (n, lanes of the cluster): up to which time each lane knows what each lane of its cluster did."""
        start = first * self._threads
        known: Array = np.zeros((len(lanes), self._width), np.int32)
        if first in self._knowledge:
            known = self._knowledge[first][lanes - start]
        block = self._wave.block_of_lane[lanes].astype(np.int64)
        cluster = slice(start, start + self._width)
        same_block = self._wave.block_of_lane[cluster] == block[:, None]
        same_warp = self._warp_of(np.arange(start, start + self._width)) == self._warp_of(lanes)[:, None]
        for where, base in (
            (same_block, self._block_base[block]),
            (same_block & same_warp, self._warp_base[lanes]),
            (~same_block, self._cluster_base[block]),
        ):
            np.maximum(known, (base - 1)[:, None], out=known, where=where, casting="unsafe")
        acquired = self._lane_acquired[lanes]
        if acquired.any():  # what a lane learnt through strong accesses
            last, begun = self._lane_released[cluster].astype(np.int64).T
            seen = (begun > 0) & (begun <= acquired[:, None])
            np.maximum(known, last, out=known, where=seen, casting="unsafe")
        known[:, self._wave.status[cluster] == EXITED] = self.time[first]
        known[np.arange(len(lanes)), lanes - start] = self.time[first]
        return known

    def _warp_of(self, lanes: Array) -> Array:
        warps: Array = lanes // self._threads * self._threads + lanes % self._threads // WARP
        return warps

    def _learn(self, first: int, lanes: Array, known: Array) -> None:
        if first not in self._knowledge:
            self._knowledge[first] = np.zeros((self._width, self._width), np.int32)
            self._knowledge_pointers[first] = self._knowledge[first].ctypes.data
        rows = lanes - first * self._threads
        self._knowledge[first][rows] = np.maximum(self._knowledge[first][rows], known)

    def _learn_all(self, first: int) -> None:
        """Too many lanes to keep apart: everything so far counts as ordered."""
        self._advance(np.array([first]))
        blocks = slice(first, first + self._cluster)
        self._block_base[blocks] = self._cluster_base[blocks] = self.time[first]

    def _advance(self, firsts: Array) -> None:
        self.time[firsts] = np.minimum(self.time[firsts] + 1, MAX_TIME)

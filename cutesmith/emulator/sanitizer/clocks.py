"""Happens-before of a wave: what barriers, fences and mbarriers tell the race check (sanitizer/happens_before.py).

Columns of what a lane knows are the lanes of its cluster, then the channels of engines (actors.py) that are in use.
Time is one counter a cluster. An access bears the time at which it is made; a synchronisation moves the time on, so
that "before the barrier" is "with a smaller time". No rule here may cause a false alarm; each may miss a race.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from cutesmith.emulator.program.abi import EXITED, WARP, Array
from cutesmith.emulator.sanitizer.actors import Channel
from cutesmith.emulator.sanitizer.cells import MAX_TIME, MOST_CHANNELS
from cutesmith.emulator.sanitizer.fenced_order import FencedOrder, as_slice, learn
from cutesmith.emulator.sanitizer.launch_clocks import LaunchClocks
from cutesmith.emulator.sanitizer.layout import Sanitizer
from cutesmith.emulator.sanitizer.phases import Phases, widened
from cutesmith.emulator.state.wave import Wave

_FEWEST_CHANNELS = 32  # columns that are made at once
_CLUSTER_BARRIER = "the barrier of the cluster"
_MOST_EXACT = 4096  # lanes of a cluster for which what each knows of each is kept (64 MB)


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
        self._phases = Phases()
        self._cluster_released = np.zeros(blocks, np.int64)
        self._channels: dict[int, dict[Channel, int]] = {}
        self._columns = self._width
        self._nothing_fenced = np.ones(max(blocks, lanes), np.int64)  # bases of the order that engines see
        self.fenced = FencedOrder(blocks, self._width)

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
        context[Sanitizer.KNOWLEDGE_WIDTH] = self._columns if self._exact else 0
        self._context = context

    def engine_context(self) -> Array:
        """A copy of the filled context in which engines' accesses are judged: they come after what was fenced."""
        context = self._context.copy()
        context[Sanitizer.THREADS_VIEW] = self._context.ctypes.data
        if self._exact:
            for word in (Sanitizer.BLOCK_BASE, Sanitizer.CLUSTER_BASE, Sanitizer.WARP_BASE):
                context[word] = self._nothing_fenced.ctypes.data
            context[Sanitizer.KNOWLEDGE] = self.fenced.pointers.ctypes.data
            context[Sanitizer.KNOWLEDGE_WIDTH] = self._width
        return context

    def time_of(self, lanes: Array) -> Array:
        """The time of an access by each lane now."""
        times: Array = self.time[self._wave.cluster_of_lane[lanes]]
        return times

    def serial_of(self, lanes: Array) -> Array:
        """The serial number of each lane's block."""
        return self.first_serial + self._wave.block_of_lane[lanes].astype(np.int64)

    # ------------------------------------------------------------------------------------------- barriers and fences

    def synchronise_blocks(self, blocks: Array, met: Array | None = None) -> None:
        """All lanes of each of these blocks have met; `met`: those of the only one that have not exited."""
        firsts = blocks // self._cluster * self._cluster
        self._advance(firsts)
        self._block_base[blocks] = self.time[firsts]
        self._lane_released.reshape(-1, self._threads, 2)[blocks] = 0
        if self._knowledge or self.fenced.in_use:
            for block, first in zip(blocks.tolist(), firsts.tolist(), strict=True):
                start = (block - first) * self._threads
                lanes = rows_met = slice(start, start + self._threads)
                if met is not None and isinstance(at := as_slice(met - first * self._threads), slice):
                    rows_met = at  # what exited lanes know does not matter
                self.fenced.meet(first, rows_met)
                if self._cluster == 1 and not self._channels:  # with one block the base says it all
                    self._knowledge.pop(first, None)
                    self._knowledge_pointers[first] = 0
                elif first in self._knowledge:
                    rows = self._knowledge[first][rows_met]
                    for others in (rows[:, : lanes.start], rows[:, lanes.stop :]):  # of the block the base says it all
                        if others.size:
                            others[:] = others.max(axis=0)

    def synchronise_lanes(self, lanes: Array) -> None:
        """These lanes of one block have met; lanes that have exited count as if they had been there."""
        block = int(self._wave.block_of_lane[lanes[0]])
        present = np.zeros(self._threads, bool)
        present[lanes - block * self._threads] = True
        present |= self._wave.status[block * self._threads : (block + 1) * self._threads] == EXITED
        if present.all():
            self.synchronise_blocks(np.array([block]), lanes)
            return
        first = block // self._cluster * self._cluster
        if not self._exact:
            self._learn_all(first)
            return
        self._meet(first, lanes)
        self.fenced.meet(first, lanes - first * self._threads)
        self._advance_one(first)

    def synchronise_warps(self, members: Array, active: Array) -> None:
        """The active lanes of each warp have met at `bar.warp.sync`; `members`, `active` as in lanes.Warps."""
        lanes = members[active]
        firsts = self._firsts_of(lanes)
        for met in (row[present] for row, present in zip(members, active, strict=True)) if self._knowledge else ():
            if (first := int(self._wave.cluster_of_lane[met[0]])) in self._knowledge:
                self._meet(first, met)
                self.fenced.meet(first, met - first * self._threads)
        self._advance(firsts)
        self._warp_base[lanes] = self.time_of(lanes)

    def fence(self, lanes: Array) -> None:
        """A fence of any scope: later strong writes release what came before it."""
        self._lane_fenced[lanes] = self.time_of(lanes)
        self._launch.fenced[self.serial_of(lanes)] = self.time_of(lanes)
        self.release_cluster(lanes)

    def release_cluster(self, lanes: Array) -> None:
        """Arrival at the cluster's barrier."""
        firsts = self._firsts_of(lanes)
        self._cluster_released[firsts] = self.time[firsts]
        for first, mine in self._by_cluster(lanes, firsts) if self._channels or self.fenced.in_use else ():
            self.release(mine, _CLUSTER_BARRIER)
            self.complete(first, _CLUSTER_BARRIER)
        self._advance(firsts)

    def acquire_cluster(self, lanes: Array) -> None:
        """The cluster's barrier is over, so all had arrived: what came before the last release is ordered."""
        firsts = self._firsts_of(lanes)
        blocks = (firsts[:, None] + np.arange(self._cluster)).ravel()
        base = np.repeat(self._cluster_released[firsts] + 1, self._cluster)
        self._cluster_base[blocks] = np.maximum(self._cluster_base[blocks], base)
        self._block_base[blocks] = np.maximum(self._block_base[blocks], base)
        for _, mine in self._by_cluster(lanes, firsts) if self._channels or self.fenced.in_use else ():
            self.acquire(mine, _CLUSTER_BARRIER)

    def _firsts_of(self, lanes: Array) -> Array:
        """int64 (n,): the first blocks of the clusters of these lanes, ascending."""
        return np.flatnonzero(np.bincount(self._wave.cluster_of_lane[lanes]))

    def _by_cluster(self, lanes: Array, firsts: Array) -> list[tuple[int, Array]]:
        clusters = self._wave.cluster_of_lane[lanes]
        if (clusters[1:] < clusters[:-1]).any():
            return [(first, lanes[clusters == first]) for first in firsts.tolist()]
        return list(zip(firsts.tolist(), np.split(lanes, np.searchsorted(clusters, firsts[1:])), strict=True))

    # ----------------------------------------------------------------------------------------------- mbarriers

    def release(self, lanes: Array, key: Hashable) -> None:
        """What these lanes of one cluster did, and know of, comes before what acquirers of `key` do next."""
        first = int(self._wave.cluster_of_lane[lanes[0]])
        if not self._exact:
            return
        self._phases.release(first, key, self._know_together(first, lanes))
        self.fenced.release(first, lanes - first * self._threads, key)
        self._advance_one(first)

    def complete(self, first: int, key: Hashable) -> None:
        """The phase of `key` in the cluster of that first block is over: what was released to it can be acquired."""
        self._phases.complete(first, key)
        self.fenced.complete(first, key)

    @property
    def orders_waits(self) -> bool:
        """Whether anything was released to a phase that is over; where lanes are not kept apart all waits order."""
        return self._phases.any_over or not self._exact

    def acquire(self, lanes: Array, key: Hashable) -> None:
        """These lanes of one cluster have seen what was released to `key`."""
        first = int(self._wave.cluster_of_lane[lanes[0]])
        known = self._phases.over(first, key)
        if not self._exact:
            self._learn_all(first)
        elif known is not None:
            self._learn(first, lanes, known)
            self.fenced.acquire(first, lanes - first * self._threads, key)

    # ----------------------------------------------------------------------------------------------- engines

    def proxy_fence(self, lanes: Array) -> None:
        """These lanes have executed `fence.proxy.async`: engines see what these lanes know of."""
        if not self._exact:
            return
        firsts = self._firsts_of(lanes)
        for first, mine in self._by_cluster(lanes, firsts):
            self.fenced.fence(first, mine - first * self._threads, self._know(first, mine)[:, : self._width])
        self._advance(firsts)

    def request(self, lane: int, channel: Channel) -> tuple[int, int]:
        """A lane asks an engine for something now: the channel's number in its cluster, and the time that it bears.

        Channels beyond MOST_CHANNELS share the last number.
        """
        first = int(self._wave.cluster_of_lane[lane])
        channels = self._channels.setdefault(first, {})
        number = channels.setdefault(channel, min(len(channels), MOST_CHANNELS - 1))
        if self._width + number >= self._columns:
            self._add_columns()
        time = int(self.time[first])
        self._advance_one(first)
        return number, time

    def _add_columns(self) -> None:
        more = max(_FEWEST_CHANNELS, self._columns - self._width)
        self._columns += more
        for first, known in self._knowledge.items():
            self._knowledge[first] = widened(known, self._columns)
            self._knowledge_pointers[first] = self._knowledge[first].ctypes.data
        self._phases.widen(self._columns)
        if self._exact:
            self._context[Sanitizer.KNOWLEDGE_WIDTH] = self._columns

    def engines_see_alike(self, lanes: Array) -> bool:
        """Whether requests of these lanes of one block come after the same fenced writes and the same engines' work."""
        first = int(self._wave.cluster_of_lane[lanes[0]])
        rows, acquired = lanes - first * self._threads, self._lane_acquired[lanes]
        if not (acquired == acquired[0]).all() or not self.fenced.alike(first, rows):
            return False
        if (known := self._knowledge.get(first)) is None:
            return True
        channels = known[rows, self._width :]
        return bool((channels == channels[0]).all())

    def land(self, lane: int, key: Hashable, channel: int, time: int) -> None:
        """What the lane asked for at that time has been done; who waits for the phase of `key` will know."""
        if self._exact:
            known = np.zeros(self._columns, np.int32)
            known[self._width + channel] = time
            self._phases.release(int(self._wave.cluster_of_lane[lane]), key, known)

    def known(self, lanes: Array) -> Array | None:
        """int32 (columns,): what any of these lanes of one cluster knows; None where that is not kept exactly."""
        if not self._exact:
            return None
        return self._know_together(int(self._wave.cluster_of_lane[lanes[0]]), lanes)

    def column(self, channel: int) -> int:
        """Where the time of a channel stands in what a lane knows."""
        return self._width + channel

    def now(self, lane: int) -> int:
        """The time of the lane's cluster."""
        return int(self.time[self._wave.cluster_of_lane[lane]])

    def met_since(self, block: int, time: int) -> bool:
        """Whether all lanes of the block have met since."""
        return bool(self._block_base[block] > time)

    def known_to_block(self, block: int, serials: Array, threads: Array, times: Array) -> Array:
        """bool (n,): whether a thread of `block` has learnt of what threads of other blocks of its cluster did."""
        first = block - block % self._cluster
        known: Array = (times < self._cluster_base[block]) | (times == MAX_TIME)
        acquired = self._launch.acquired[self.first_serial + block]
        last, begun = self._launch.released[serials].astype(np.int64).T
        known |= (begun > 0) & (begun <= acquired) & (times <= last)
        if first in self._knowledge:
            start = (block - first) * self._threads
            learnt = self._knowledge[first][start : start + self._threads].max(axis=0)
            known |= learnt[(serials - self.first_serial - first) * self._threads + threads] >= times
        return known

    def finish(self, lane: int, key: Hashable, known: Array) -> None:
        """Work that a lane asked for is done: who waits for the phase of `key` knows what is `known` (columns,)."""
        if self._exact:
            first = int(self._wave.cluster_of_lane[lane])
            self._phases.release(first, key, widened(known, self._columns))
            self.fenced.release(first, np.array([lane - first * self._threads]), key)

    def learn_channel(self, lanes: Array, channel: int, time: int) -> None:
        """These lanes of one cluster have waited for all that was asked of the channel up to a time."""
        first = int(self._wave.cluster_of_lane[lanes[0]])
        if not self._exact:
            self._learn_all(first)
            return
        rows, column = lanes - first * self._threads, self._width + channel
        known = self._knowledge_of(first)
        known[rows, column] = np.maximum(known[rows, column], time)

    def _know(self, first: int, lanes: Array) -> Array:
        """int32 (n, columns): up to which time each lane knows what each lane and engine of its cluster did."""
        start = first * self._threads
        if first in self._knowledge:
            whole = np.array(self._knowledge[first][as_slice(lanes - start)])
        else:
            whole = np.zeros((len(lanes), self._columns), np.int32)
        known, block = whole[:, : self._width], self._wave.block_of_lane[lanes].astype(np.int64)
        blocks = [first] if self._cluster == 1 else np.unique(block).tolist()
        for mine in blocks:
            learn(known, np.flatnonzero(block == mine), self._known_by_block(first, np.array([mine])))
        if (bases := self._warp_base[lanes]).max() > 1:
            rows, columns = np.arange(len(lanes))[:, None], self._columns_of_warps(lanes) - start
            known[rows, columns] = np.maximum(known[rows, columns], (bases - 1)[:, None])
        acquired = self._lane_acquired[lanes]
        if acquired.any():  # what a lane learnt through strong accesses
            last, seen = self._seen(first, acquired[:, None])
            np.maximum(known, last, out=known, where=seen, casting="unsafe")
        if (exited := self._wave.status[start : start + self._width] == EXITED).any():
            known[:, exited] = self.time[first]
        known[np.arange(len(lanes)), lanes - start] = self.time[first]
        return whole

    def _know_together(self, first: int, lanes: Array) -> Array:
        """int32 (columns,): the largest that any of these lanes knows, `_know(first, lanes).max(axis=0)`."""
        start = first * self._threads
        whole: Array = np.zeros(self._columns, np.int32)
        if first in self._knowledge:
            rows = self._knowledge[first][as_slice(lanes - start)]
            whole = rows[0].copy() if len(rows) == 1 else rows.max(axis=0)
        known = whole[: self._width]
        if self._cluster == 1:
            np.maximum(known, self._block_base[first] - 1, out=known, casting="unsafe")
        else:
            blocks = np.unique(self._wave.block_of_lane[lanes])
            np.maximum(known, self._known_by_block(first, blocks), out=known)
        if _largest(bases := self._warp_base[lanes]) > 1:
            np.maximum.at(known, self._columns_of_warps(lanes) - start, (bases - 1).astype(np.int32)[:, None])
        if latest := _largest(self._lane_acquired[lanes]):
            last, seen = self._seen(first, latest)
            np.maximum(known, last, out=known, where=seen, casting="unsafe")
        known[self._wave.status[start : start + self._width] == EXITED] = self.time[first]
        known[lanes - start] = self.time[first]
        return whole

    def _known_by_block(self, first: int, blocks: Array) -> Array:
        """int32 (lanes of the cluster,): what the lanes of one of these blocks at least know, by their bases."""
        if self._cluster == 1:
            return np.full(self._threads, self._block_base[first] - 1, np.int32)
        bases = np.broadcast_to(self._cluster_base[blocks][:, None], (len(blocks), self._cluster)).copy()
        bases[np.arange(len(blocks)), blocks.astype(np.int64) - first] = self._block_base[blocks]
        known: Array = np.repeat((bases.max(axis=0) - 1).astype(np.int32), self._threads)
        return known

    def _columns_of_warps(self, lanes: Array) -> Array:
        """int64 (n, 32): the lanes of each lane's warp; some twice where its block has fewer."""
        block = lanes // self._threads * self._threads
        warp = block + (lanes - block) // WARP * WARP
        columns: Array = np.minimum(warp[:, None] + np.arange(WARP), (block + self._threads - 1)[:, None])
        return columns

    def _seen(self, first: int, acquired: Array | int) -> tuple[Array, Array]:
        """Of each lane of a cluster the time of its last release, and whether who `acquired` then has seen it."""
        cluster = slice(first * self._threads, first * self._threads + self._width)
        last, begun = self._lane_released[cluster].astype(np.int64).T
        return last, (begun > 0) & (begun <= acquired)

    def _knowledge_of(self, first: int) -> Array:
        if first not in self._knowledge:
            self._knowledge[first] = np.zeros((self._width, self._columns), np.int32)
            self._knowledge_pointers[first] = self._knowledge[first].ctypes.data
        return self._knowledge[first]

    def _learn(self, first: int, lanes: Array, known: Array) -> None:
        learn(self._knowledge_of(first), lanes - first * self._threads, known)

    def _meet(self, first: int, lanes: Array) -> None:
        """Each of these lanes knows from now on what one of them knew."""
        met = self._know_together(first, lanes)
        self._knowledge_of(first)[as_slice(lanes - first * self._threads)] = met

    def _learn_all(self, first: int) -> None:
        """Too many lanes to keep apart: everything so far counts as ordered."""
        self._advance_one(first)
        blocks = slice(first, first + self._cluster)
        self._block_base[blocks] = self._cluster_base[blocks] = self.time[first]

    def _advance_one(self, first: int) -> None:
        self.time[first] = min(int(self.time[first]) + 1, MAX_TIME)

    def _advance(self, firsts: Array) -> None:
        self.time[firsts] = np.minimum(self.time[firsts] + 1, MAX_TIME)


def _largest(values: Array) -> int:
    """Of one value, as is most common, without a reduction."""
    return int(values[0]) if len(values) == 1 else int(values.max())

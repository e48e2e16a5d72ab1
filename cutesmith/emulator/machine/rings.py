"""Rings of mbarriers as a launch uses them: how many stages, and how often a block goes through one.

A ring is an array of neighbouring mbarriers that take as many arrivals; whether bytes were counted keeps apart the
array that a copy engine fills from the one behind it that consumers empty. Mbarriers that nothing has used yet belong
to the array before them. Faults of a ring (a phase that flips only
once it wraps, a release that is missing at the end) show on one side of trips = stages alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.program.abi import SHARED_BASE, Array
from cutesmith.verdicts import MbarrierRing

_BARRIER_BYTES = 8


class Mbarriers(Unit):
    """The mbarriers that were initialised, by host address: for how many arrivals; and which were told of bytes."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._counts: dict[int, int] = {}
        self._filled: set[int] = set()
        self._before = len(machine.memory.phases_over)

    def initialised(self, pointers: Array, counts: Array) -> None:
        """There are some for so many arrivals now."""
        self._counts.update(zip(pointers.tolist(), counts.tolist(), strict=True))
        self._filled.difference_update(pointers.tolist())

    def counts_bytes(self, pointer: int) -> None:
        """It was told to expect bytes."""
        self._filled.add(pointer)

    def rings(self) -> list[MbarrierRing]:
        """Those of all blocks of the wave, arrays of one included; of equal ones one."""
        wave, over = self.machine.wave, Counter(self.machine.memory.phases_over[self._before :])
        pointers = sorted(self._counts)
        rows = [(pointer, self._counts[pointer], pointer in self._filled, over[pointer]) for pointer in pointers]
        table = np.array(rows, np.int64).reshape(-1, 4)
        joins = np.append(False, (np.diff(table[:, :2], axis=0) == (_BARRIER_BYTES, 0)).all(axis=1))[: len(table)]
        known = table[:, 2:].any(axis=1) | ~joins  # of the others, the last one before says whether bytes are counted
        filled = table[np.maximum.accumulate(np.where(known, np.arange(len(table)), 0)), 2]
        starts = np.flatnonzero(~joins | np.append(True, np.diff(filled) != 0)[: len(table)])
        places = (table[starts, 0] - wave.shared_start) % wave.shared.shape[1] - SHARED_BASE
        lengths = np.diff(np.append(starts, len(table)))
        ends = np.add.reduceat(table[:, 3], starts) if len(table) else lengths
        found = zip(places.tolist(), lengths.tolist(), table[starts, 2].tolist(), ends.tolist(), strict=True)
        return [
            MbarrierRing(first, stages, bool(filled), trips) for first, stages, filled, trips in dict.fromkeys(found)
        ]


def longest(rings: Iterable[MbarrierRing]) -> tuple[MbarrierRing, ...]:
    """Of rings at the same place, as several blocks have them, the one with the most trips, by their places.

    One that copies fill comes first: in a pair of blocks it may be the leader's alone.
    """
    most: dict[int, MbarrierRing] = {}
    for ring in rings:
        known = most.get(ring.first)
        most[ring.first] = ring if known is None or (ring.filled, ring.trips) > (known.filled, known.trips) else known
    return tuple(most[first] for first in sorted(most))


def main_ring(rings: Iterable[MbarrierRing]) -> MbarrierRing | None:
    """The ring of several stages that a kernel goes round: of those that copies fill, if any are, the longest."""
    used = [ring for ring in rings if ring.stages > 1 and ring.trips]
    return max(used, key=lambda ring: (ring.filled, ring.stages, -ring.first, ring.trips), default=None)

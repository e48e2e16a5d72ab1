"""Rings of mbarriers as a launch uses them: how many stages, and how often a block goes through one.

A ring is an array of neighbouring mbarriers that take as many arrivals; whether bytes were counted keeps apart the
array that a copy engine fills from the one behind it that consumers empty. Faults of a ring (a phase that flips only
once it wraps, a release that is missing at the end) show on one side of trips = stages alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.program.abi import SHARED_BASE
from cutesmith.emulator.state.wave import Wave
from cutesmith.verdicts import MbarrierRing

_BARRIER_BYTES = 8


@dataclass
class _State:
    """An mbarrier of one block."""

    count: int
    filled: bool = False


class Mbarriers(Unit):
    """The mbarriers that were initialised, by host address."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._known: dict[int, _State] = {}
        self._before = len(machine.memory.phases_over)

    def initialised(self, pointer: int, count: int) -> None:
        """There is one for `count` arrivals now."""
        self._known[pointer] = _State(count)

    def counts_bytes(self, pointer: int) -> None:
        """It was told to expect bytes."""
        if pointer in self._known:
            self._known[pointer].filled = True

    def rings(self) -> Iterator[MbarrierRing]:
        """Those of all blocks of the wave, arrays of one included."""
        phases = Counter(self.machine.memory.phases_over[self._before :])
        arrays: list[list[int]] = []
        for pointer, state in sorted(self._known.items()):
            last = arrays[-1][-1] if arrays else None
            follows = last is not None and pointer - last == _BARRIER_BYTES and self._known[last] == state
            if not follows:
                arrays.append([])
            arrays[-1].append(pointer)
        for array in arrays:
            trips = sum(phases[pointer] for pointer in array)
            yield MbarrierRing(_place(self.machine.wave, array[0]), len(array), self._known[array[0]].filled, trips)


def _place(wave: Wave, pointer: int) -> int:
    return int(pointer - wave.shared.ctypes.data) % int(wave.shared.shape[1]) - SHARED_BASE


def longest(rings: Iterable[MbarrierRing]) -> tuple[MbarrierRing, ...]:
    """Of rings at the same place, as several blocks have them, the one with the most trips, by their places."""
    most: dict[int, MbarrierRing] = {}
    for ring in rings:
        known = most.get(ring.first)
        most[ring.first] = ring if known is None or ring.trips > known.trips else known
    return tuple(most[first] for first in sorted(most))


def main_ring(rings: Iterable[MbarrierRing]) -> MbarrierRing | None:
    """The ring of several stages that a kernel goes round: of those that copies fill, if any are, the longest."""
    used = [ring for ring in rings if ring.stages > 1 and ring.trips]
    return max(used, key=lambda ring: (ring.filled, ring.stages, -ring.first, ring.trips), default=None)

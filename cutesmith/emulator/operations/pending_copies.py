"""Asynchronous copies (`cp.async`): under way until a wait of the thread that issued them covers their group.

The source is read when the copy is issued. The destination is filled with a pattern until the copy is waited for, so
that a kernel that does not wait computes wrong numbers, as it may on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.program.abi import Array

_POISON = 0xFF


@dataclass
class _Copies:
    """Copies that were issued together: host addresses in the wave's shared memory, and their `data` (n, size)."""

    lanes: Array
    groups: Array
    pointers: Array
    data: Array
    site: int

    def select(self, chosen: Array) -> _Copies:
        """Some of them."""
        return _Copies(self.lanes[chosen], self.groups[chosen], self.pointers[chosen], self.data[chosen], self.site)


class PendingCopies(Unit):
    """The copies under way in a wave. Groups are counted by thread: a commit ends the one that is open."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._wave, self._memory = machine.wave, machine.memory
        self._open_group = np.zeros(machine.wave.lane_count, np.int64)
        self._under_way: list[_Copies] = []

    def issue(self, lanes: Array, pointers: Array, data: Array, site: int) -> None:
        """Copies of uint8 (n, size) to host addresses in the wave's shared memory."""
        self._memory.scatter(pointers, np.full_like(data, _POISON))
        self._memory.copies_issued(lanes, pointers, data.shape[1], site)
        self._under_way.append(_Copies(lanes, self._open_group[lanes], pointers, data, site))

    def commit(self, lanes: Array) -> None:
        """What these lanes have issued since their last commit is a group."""
        self._open_group[lanes] += 1

    def wait_groups(self, lanes: Array, allowed: int) -> None:
        """All committed groups of these lanes but the last `allowed` are complete."""
        before = np.full(self._wave.lane_count, np.iinfo(np.int64).min)
        before[lanes] = self._open_group[lanes] - allowed
        self._complete(before)

    def wait_all(self, lanes: Array) -> None:
        """Everything that these lanes have issued is complete, committed or not."""
        before = np.full(self._wave.lane_count, np.iinfo(np.int64).min)
        before[lanes] = np.iinfo(np.int64).max
        self._complete(before)

    def _complete(self, before: Array) -> None:
        """Complete the groups before a number that depends on the lane, in the order in which they were issued."""
        left = []
        for copies in self._under_way:
            done = copies.groups < before[copies.lanes]
            if done.any():
                landed = copies if (whole := done.all()) else copies.select(done)
                self._memory.scatter(landed.pointers, landed.data)  # from now on the bytes count as the thread's own
                self._memory.copies_landed(landed.lanes, landed.pointers, landed.data.shape[1], landed.site)
                if whole:
                    continue
                copies = copies.select(~done)
            left.append(copies)
        self._under_way = left

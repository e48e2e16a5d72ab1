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
    """Copies that were issued together; `places` are byte indices into the wave's shared memory, `data` (n, size)."""

    lanes: Array
    groups: Array
    places: Array
    data: Array
    site: int

    def select(self, chosen: Array) -> _Copies:
        """Some of them."""
        return _Copies(self.lanes[chosen], self.groups[chosen], self.places[chosen], self.data[chosen], self.site)

    @property
    def bytes_touched(self) -> Array:
        """(n, size): the index of every byte."""
        touched: Array = self.places[:, None] + np.arange(self.data.shape[1])
        return touched


class PendingCopies(Unit):
    """The copies under way in a wave. Groups are counted by thread: a commit ends the one that is open."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._wave, self._memory = machine.wave, machine.memory
        self._shared = machine.wave.shared.reshape(-1)
        self._open_group = np.zeros(machine.wave.lane_count, np.int64)
        self._under_way: list[_Copies] = []

    def issue(self, lanes: Array, pointers: Array, data: Array, site: int) -> None:
        """Copies of uint8 (n, size) to host addresses in the wave's shared memory."""
        places = (pointers - np.uint64(self._wave.shared.ctypes.data)).astype(np.int64)
        copies = _Copies(lanes, self._open_group[lanes], places, data, site)
        self._shared[copies.bytes_touched] = _POISON
        self._memory.copies_issued(lanes, copies.bytes_touched, site)
        self._under_way.append(copies)

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
                landed = copies.select(
                    done
                )  # from now on the bytes count as written by the thread that issued the copy
                self._shared[landed.bytes_touched] = landed.data
                self._memory.copies_landed(landed.lanes, landed.bytes_touched, landed.site)
            if not done.all():
                left.append(copies.select(~done))
        self._under_way = left

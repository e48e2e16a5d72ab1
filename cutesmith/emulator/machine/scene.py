"""Where every lane is once none can go on, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import Location
from cutesmith.emulator.state.findings import where

_MOST_PLACES = 6


class Scene:
    """The lanes that wait at each line; all others have exited."""

    def __init__(self, machine: Machine, waiting: Sequence[tuple[Location | None, Array]]) -> None:
        self.machine = machine
        self._lines = [location for location, _ in waiting]
        self._place = np.full(machine.wave.lane_count, -1)  # index of `waiting`; -1: exited
        for index, (_, lanes) in enumerate(waiting):
            self._place[lanes] = index

    def waits(self, lanes: Array) -> Array:
        """Which of these lanes wait; the others have exited."""
        waits: Array = self._place[lanes] >= 0
        return waits

    def rest_of_warps(self, lanes: Array) -> Array:
        """The other lanes of the warps of these lanes."""
        members = self.machine.wave.members[np.unique(self.machine.warps.warp_of_lane[lanes])]
        return np.setdiff1d(members[members >= 0], lanes)

    def places(self, lanes: Array) -> str:
        """Where these lanes are, as "warps 2 wait at kernel.py:30, warps 3 have exited"."""
        if not len(lanes):
            return "all others are there"
        texts = []
        for index in np.unique(self._place[lanes])[::-1]:
            who = self.who(lanes[self._place[lanes] == index])
            if index < 0:
                texts.append(f"{who} have exited")
            else:
                texts.append(f"{who} wait at {where(self._lines[index])}")
        more = f" and {len(texts) - _MOST_PLACES} more places" if len(texts) > _MOST_PLACES else ""
        return ", ".join(texts[:_MOST_PLACES]) + more

    def who(self, lanes: Array) -> str:
        """Whole warps as "warps 0-3", parts of warps with their lanes, of the block of the first lane."""
        wave, warps = self.machine.wave, self.machine.warps
        block = wave.block_of_lane[lanes[0]]
        present = warps.spread(lanes[wave.block_of_lane[lanes] == block])
        first = int(np.flatnonzero(warps.block_of_warp == block)[0])
        rows = np.flatnonzero(present.any(axis=1))
        whole = (present[rows] == warps.exists[rows]).all(axis=1)
        texts = [f"warps {ranges(rows[whole] - first)}"] if whole.any() else []
        for row in rows[~whole][: _MOST_PLACES - len(texts)]:
            texts.append(f"lanes {ranges(np.flatnonzero(present[row]))} of warp {row - first}")
        return ", ".join(texts)


def ranges(numbers: Array) -> str:
    """Ascending numbers as "0-3, 7"."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)

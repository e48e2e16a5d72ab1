"""Sets of lanes: by the basic block or suspension point where they are, and arranged by warp."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.state.wave import Wave


class LaneGroups:
    """Lanes (int32, ascending) by the number of a basic block or suspension point."""

    def __init__(self) -> None:
        self._groups: dict[int, list[Array]] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, key: int, lanes: Array) -> None:
        """Put lanes, none of them there yet, to those of `key`."""
        if len(lanes):
            self._groups.setdefault(key, []).append(lanes)

    def take(self, key: int) -> Array:
        """Remove and give the lanes of `key`."""
        return _joined(self._groups.pop(key))

    def take_all(self) -> list[tuple[int, Array]]:
        """Remove and give all groups, in the order of their numbers."""
        groups, self._groups = self._groups, {}
        return [(key, _joined(groups[key])) for key in sorted(groups)]

    def numbers(self) -> list[int]:
        """The numbers that have lanes, ascending."""
        return sorted(self._groups)

    def items(self) -> list[tuple[int, Array]]:
        """All groups, left where they are."""
        return [(key, _joined(self._groups[key])) for key in sorted(self._groups)]

    def arrays(self) -> Iterator[Array]:
        """The lanes of all groups, an array at a time."""
        return (array for arrays in self._groups.values() for array in arrays)


def _joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.sort(np.concatenate(arrays))


class WarpMap:
    """Where each lane of a wave sits in its warp, and which lanes have not ended.

    `warp_of_lane`: int32 (lanes,). `live`: bool (warps, 32). `ended`: how many lanes have.
    """

    def __init__(self, wave: Wave) -> None:
        self._members = wave.members
        self.exists = wave.members >= 0
        self.live = self.exists.copy()
        self.ended = 0
        rows, columns = np.nonzero(self.exists)
        self._slot_of_lane = np.empty(wave.lane_count, np.int32)
        self._slot_of_lane[wave.members[rows, columns]] = rows * WARP + columns
        self.warp_of_lane = self._slot_of_lane // WARP
        self.block_of_warp = wave.block_of_lane[wave.members[:, 0]].astype(np.int64)
        self.slots = wave.members.size

    def spread(self, lanes: Array) -> Array:
        """bool (warps, 32): where `lanes` are."""
        present = np.zeros(self.slots, bool)
        present[self._slot_of_lane[lanes]] = True
        return present.reshape(-1, WARP)

    def end(self, lanes: Array) -> None:
        """These lanes have exited."""
        self.live.reshape(-1)[self._slot_of_lane[lanes]] = False
        self.ended += len(lanes)

    def by_warp(self, values: Array, absent: int) -> Array:
        """The values (lanes,) as (warps, 32), `absent` where a warp has no lane."""
        return np.where(self.exists, values[self._members], absent)

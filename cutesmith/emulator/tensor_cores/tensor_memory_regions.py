"""Addresses and regions of tensor memory."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.emulator.program.abi import Array

LANES, COLUMNS = 128, 512
LANE_SHIFT = 16


@dataclass(frozen=True)
class Region:
    """Some lanes (ascending) and `count` columns from `column` on, of a block of the wave."""

    block: int
    lanes: Array
    column: int
    count: int

    @property
    def columns(self) -> slice:
        """The columns."""
        return slice(self.column, self.column + self.count)

    def __str__(self) -> str:
        last = self.column + self.count - 1
        return f"columns {self.column}-{last} of lanes {int(self.lanes[0])}-{int(self.lanes[-1])} of tensor memory"


def lane_and_column(address: int) -> tuple[int, int]:
    """The parts of an address."""
    return address >> LANE_SHIFT & 0xFFFF, address & 0xFFFF

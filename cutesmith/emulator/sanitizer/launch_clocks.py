"""What the blocks of a launch know of one another over all of its waves (sanitizer/clocks.py has the order of one)."""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.sanitizer.cells import MAX_SERIAL


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

"""What the kernel of a scan is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class ScansConfiguration(Configuration):
    """How lines that are scanned lie over threads: a thread takes `vectors` of `vector` neighbouring elements each.

    `lanes` of a warp follow each other along a line (1: each lane has a line of its own), and `along` warps; `across`
    times as many warps make a block, which goes along its lines. With `stages`, tiles of the same lines are at work in
    `resident` blocks of each multiprocessor in rounds: so many tiles of a block are in shared memory, by bulk copies
    if `bulk`, and a tile gives what others need `lead` rounds before its results.
    """

    lanes: int
    along: int
    across: int
    vector: int
    vectors: int
    stages: int = 0
    lead: int = 0
    resident: int = 0
    bulk: bool = False

    @property
    def threads(self) -> int:
        """A block's."""
        return 32 * (self.along + 1) if self.stages else 32 * self.along * self.across

    @property
    def tile(self) -> int:
        """Elements of a line that are scanned at once."""
        return self.lanes * self.along * self.vector * self.vectors

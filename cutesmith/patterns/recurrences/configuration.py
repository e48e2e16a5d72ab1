"""What the kernel of a recurrent layer is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration

MOST_OF_A_CLUSTER = 8
"""Blocks: what every GPU with clusters takes."""


@dataclass(frozen=True)
class RecurrencesConfiguration(Configuration):
    """How the units of a layer lie over threads: `blocks` share them, and `lanes` threads the sums of `per` units.

    A thread sums `rows` rows of the batch at once, and `groups` of threads have rows of their own. Up to eight blocks
    are a cluster, which has no more rows than that. More are a grid: it has all rows, and hands states on in global
    memory. `held`: the weights stay in registers; else each step reads them again.
    """

    blocks: int
    lanes: int
    per: int
    rows: int
    groups: int
    held: bool

    @property
    def is_grid(self) -> bool:
        """Whether all blocks wait for each other."""
        return self.blocks > MOST_OF_A_CLUSTER

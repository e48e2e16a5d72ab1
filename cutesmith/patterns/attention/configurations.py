"""What the kernels of attention and of its gradients are free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class AttentionConfiguration(Configuration):
    """Rows of a tile of queries, and of keys and values; the warps, each of which has 16 rows of queries."""

    queries: int
    keys: int
    warps: int


@dataclass(frozen=True)
class HopperAttentionConfiguration(Configuration):
    """Warpgroups of arithmetic, each of which has 64 rows of queries; keys of a step, and steps in shared memory.

    With `turns` the products of one warpgroup go beside the softmax of the other.
    """

    warpgroups: int
    keys: int
    stages: int
    turns: bool

    @property
    def queries(self) -> int:
        """Rows of a block."""
        return 64 * self.warpgroups

    @property
    def threads(self) -> int:
        """A block's, those of the loading warpgroup among them."""
        return 128 * (1 + self.warpgroups)


@dataclass(frozen=True)
class AttentionGradientConfiguration(Configuration):
    """Keys of a block, queries of a step, and steps in shared memory."""

    keys: int
    queries: int
    stages: int

    @property
    def warpgroups(self) -> int:
        """Of arithmetic, each of which has 64 keys."""
        return self.keys // 64

    @property
    def threads(self) -> int:
        """A block's."""
        return 128 * (1 + self.warpgroups)

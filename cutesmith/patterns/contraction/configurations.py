"""What the kernels of a product are free to choose, but for those of Hopper and Blackwell."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration


@dataclass(frozen=True)
class ContractionConfiguration(Configuration):
    """A block's tile of the result and how much of k a stage of shared memory holds; the warps over the tile.

    Blocks go down `group` tiles before they go right, so that those that run at once share operands in L2. `dual`: a
    tile has the sums of two products that share the left factor, and a stage a tile of each right one.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    warps_m: int
    warps_n: int
    stages: int
    group: int = 8
    dual: bool = False


@dataclass(frozen=True)
class DirectConfiguration(Configuration):
    """Of a convolution without tiles in shared memory: the features and positions that a thread sums up."""

    features: int
    positions: int
    threads: int


@dataclass(frozen=True)
class SkinnyConfiguration(Configuration):
    """Of few rows times a computed factor: `tokens` rows, and lines of the factor that a warp multiplies with them.

    The `warps_n` of a block have lines of their own, the `warps_k` shares of k; a warp loads `depth` pieces of k before
    it uses the first.
    """

    tokens: int
    lines: int
    warps_n: int
    warps_k: int
    depth: int

    @property
    def threads(self) -> int:
        """A block's."""
        return 32 * self.warps_n * self.warps_k


def products_of_parts(parts: int) -> tuple[tuple[int, int], ...]:
    """Which parts of both factors are multiplied, the smallest products first: those of the highest orders."""
    pairs = ((a, b) for a in range(parts) for b in range(parts) if a + b < parts)
    return tuple(sorted(pairs, key=sum, reverse=True))


def lines_of(tile_m: int, tile_n: int, *, swapped: bool, dual: bool) -> int:
    """Of all factors in a stage: two products have a right one each, which is the left one of transposed results."""
    right = tile_m if swapped else tile_n
    return tile_m + tile_n + (right if dual else 0)

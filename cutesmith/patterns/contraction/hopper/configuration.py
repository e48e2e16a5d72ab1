"""What Hopper's kernel of a product is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.contraction.configurations import lines_of, products_of_parts


@dataclass(frozen=True)
class HopperConfiguration(Configuration):
    """How sm_90a's kernel of a product cuts the result into tiles, and who multiplies them.

    A block has a warp that loads and `warpgroups` of arithmetic, which take turns at whole tiles (`pingpong`) or share
    each. `stages` hold `tile_k` of k each. Blocks form clusters: `cluster_m` of them down share B, `cluster_n` across
    share A, `split` share a tile and divide k. A tile leaves by `columns` at a time. `swapped` computes the transposed
    result, so that a few rows become the columns of tiles. Cluster tiles go down `group` before they go right. A
    float32 number is the sum of `parts` numbers of bfloat16; the products of a k-tile are summed apart.
    A launch splits the factors `ahead`, or the kernel itself does. `promoted`: sums of one k-tile of float8 are added
    up outside of the tensor core, whose own are short. `joined`: the positions of all images follow each other in
    tiles, which small images would not fill; a launch moves the result to its place. `dual`: as in
    `ContractionConfiguration`.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    warpgroups: int = 2
    pingpong: bool = False
    cluster_m: int = 1
    cluster_n: int = 1
    split: int = 1
    columns: int = 32
    swapped: bool = False
    group: int = 8
    parts: int = 1
    ahead: bool = False
    joined: bool = False
    promoted: bool = False
    dual: bool = False

    @property
    def rows(self) -> int:
        """Rows of a tile in the registers of one warpgroup."""
        return self.tile_m if self.pingpong else self.tile_m // self.warpgroups

    @property
    def sums_per_thread(self) -> int:
        """Registers for the sums of a tile, those of both products, and of one k-tile where they are apart."""
        return self.rows * self.tile_n // 128 * (2 if self.sums_apart or self.dual else 1)

    @property
    def lines(self) -> int:
        """Of all factors, in a stage."""
        return lines_of(self.tile_m, self.tile_n, swapped=self.swapped, dual=self.dual)

    @property
    def sums_apart(self) -> bool:
        """Whether the tensor core sums up one k-tile at a time."""
        return self.promoted or self.parts > 1

    @property
    def splits(self) -> bool:
        """Whether the kernel splits factors into parts."""
        return self.parts > 1 and not self.ahead

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Which parts of the factors are multiplied."""
        return products_of_parts(self.parts)

    @property
    def split_at_once(self) -> int:
        """Vectors of four numbers that a thread splits at once: a part of all that a tile gives it, and at most 4."""
        vectors = self.tile_n * self.tile_k // 4 // 128
        return max(n for n in (1, 2, 3, 4) if vectors % n == 0)

    @property
    def moves_registers(self) -> bool:
        """Whether the loading warps give registers to the others: 384 threads have 168 each without that."""
        return self.warpgroups > 1 and self.sums_per_thread > 96

    @property
    def threads(self) -> int:
        """A block's, those of the warpgroups that load and split among them."""
        return 128 * (1 + self.warpgroups + self.splits)

"""What Blackwell's kernel of a product is free to choose."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.contraction.configurations import lines_of, products_of_parts


@dataclass(frozen=True)
class BlackwellConfiguration(Configuration):
    """How sm_100a's kernel of a product cuts the result into tiles.

    A block has a warp that loads, one whose thread starts the products, and four that write out. `pair`: two blocks
    make one tile of `tile_m` rows, of which each holds half; else a block does. `stages` hold `tile_k` of k each.
    Tensor memory holds the sums of `accumulators` tiles. A tile leaves by `columns` at a time. `swapped` computes the
    transposed result, so that a few rows become the columns of tiles. Tiles go down `group` before they go right. A
    float32 number is the sum of `parts` numbers of bfloat16, into which launches split the factors; tensor memory then
    holds the sums of `accumulators` k-tiles, which are added up in registers. `joined`: the positions of all images
    follow each other in tiles, as on Hopper. `dual`: as there; sums of both products lie side by side in tensor memory.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    pair: bool = False
    accumulators: int = 2
    columns: int = 32
    swapped: bool = False
    group: int = 8
    parts: int = 1
    joined: bool = False
    dual: bool = False

    @property
    def ahead(self) -> bool:
        """Whether launches split the factors."""
        return self.parts > 1

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Which parts of the factors are multiplied."""
        return products_of_parts(self.parts)

    @property
    def rows(self) -> int:
        """Rows of a tile that a block holds."""
        return self.tile_m // (2 if self.pair else 1)

    @property
    def buffers(self) -> int:
        """Strips of columns that are on their way out at once."""
        return 2 if self.tile_n // self.columns % 2 == 0 else 1

    @property
    def tensor_columns(self) -> int:
        """Of tensor memory, which is given in powers of two from 32 on."""
        return max(32, 1 << (self.sums_columns - 1).bit_length())

    @property
    def sums_columns(self) -> int:
        """Of tensor memory: those that hold sums."""
        return self.accumulators * self.tile_n * (2 if self.dual else 1)

    @property
    def lines(self) -> int:
        """Of all factors, in a stage."""
        return lines_of(self.tile_m, self.tile_n, swapped=self.swapped, dual=self.dual)

    @property
    def threads(self) -> int:
        """A block's."""
        return 192

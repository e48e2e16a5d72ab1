"""What the kernel of each pattern is free to choose: it is right for every value of its fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Configuration:
    """The fields of a pattern's own are numbers and words; the kernel is right for each of their values."""

    def to_dict(self) -> dict[str, object]:
        """JSON-able, in the order of the fields."""
        return dict(vars(self))


@dataclass(frozen=True)
class ElementwiseConfiguration(Configuration):
    """Threads a block, elements a vector, and vectors a thread, all loaded before the first is used."""

    threads: int
    vector: int
    vectors: int


@dataclass(frozen=True)
class RowsConfiguration(Configuration):
    """How a row is spread over threads, where it waits between visits, and the cache hints of its accesses.

    An access has at most `vector` elements; `elements_per_thread` decides how many threads a row gets. A block has
    `min_threads` (short rows share one) to `max_threads`; longer rows are split over up to `max_cluster` blocks. A
    thread keeps up to `resident_elements` in registers; of a longer row it loads `reload_elements` at a time, and the
    row waits in `shared_bytes` of shared memory a block where it fits. `hints` (none, stream, keep, last) are for
    loads, `stores` (none, first) for stores. `threads_per_sm` limits registers so that as many threads fit; 0 does not.
    `neighbours`: rows that read the same of a broadcast tensor follow each other, whatever the order in memory.
    """

    vector: int = 8
    elements_per_thread: int = 32
    min_threads: int = 128
    max_threads: int = 1024
    max_cluster: int = 1
    resident_elements: int = 64
    reload_elements: int = 32
    shared_bytes: int = 0
    hints: str = "none"
    stores: str = "none"
    threads_per_sm: int = 0
    neighbours: bool = False


@dataclass(frozen=True)
class ColumnsConfiguration(Configuration):
    """How vectors of neighbouring rows, which lie side by side in memory, are spread over the threads of a block.

    `lanes` threads have a vector each, of at most `vector` rows; the `threads` of a block take turns at the columns.
    They are up to `max_threads` where blocks are few, or where rows then stay in registers between visits,
    `resident_elements` a thread. Otherwise a thread loads `reload_elements` at a time. `hints`, `stores` and
    `threads_per_sm` are those of `RowsConfiguration`.
    """

    vector: int = 8
    lanes: int = 32
    threads: int = 256
    max_threads: int = 512
    resident_elements: int = 64
    reload_elements: int = 32
    hints: str = "none"
    stores: str = "none"
    threads_per_sm: int = 0


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


def products_of_parts(parts: int) -> tuple[tuple[int, int], ...]:
    """Which parts of both factors are multiplied, the smallest products first: those of the highest orders."""
    pairs = ((a, b) for a in range(parts) for b in range(parts) if a + b < parts)
    return tuple(sorted(pairs, key=sum, reverse=True))


def lines_of(c: HopperConfiguration | BlackwellConfiguration) -> int:
    """Of all factors in a stage: two products have a right one each, which is the left one of transposed results."""
    right = c.tile_m if c.swapped else c.tile_n
    return c.tile_m + c.tile_n + (right if c.dual else 0)


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
        return lines_of(self)

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
        return lines_of(self)

    @property
    def threads(self) -> int:
        """A block's."""
        return 192


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


@dataclass(frozen=True)
class WindowsConfiguration(Configuration):
    """Threads a block, and the neighbouring outputs that each makes; neighbouring threads lie along a line.

    `by_channels`: they lie along the channels, where these follow each other in memory. An image has to have some.
    `in_channels`: so do the outputs of a thread. `lines`: it makes those outputs in so many neighbouring lines.
    """

    threads: int
    outputs: int
    by_channels: bool = False
    in_channels: bool = False
    lines: int = 1


@dataclass(frozen=True)
class SelectionConfiguration(Configuration):
    """Threads a block, which has one line, and how it is sorted: by digits of the keys (`radix`), or by a network.

    The network has a thread load so many elements before the first is used; by digits it holds so many of a tile. A
    buffer of up to `shared_bytes` lies in shared memory; that of digits may be spread over a `cluster` of blocks.
    """

    threads: int
    loads: int
    shared_bytes: int
    radix: bool = False
    cluster: int = 1


@dataclass(frozen=True)
class ScattersConfiguration(Configuration):
    """Threads a block, and the indices that each loads before the first is used.

    A block keeps up to `tile` results in shared memory, and up to `staged` of the elements that belong to them.
    """

    threads: int
    loads: int
    tile: int
    staged: int


@dataclass(frozen=True)
class AtomicsConfiguration(Configuration):
    """Threads a block; tiles that a thread loads before it adds the first; columns that it adds at once."""

    threads: int
    loads: int
    vector: int


@dataclass(frozen=True)
class TransformsConfiguration(Configuration):
    """How lines are transformed: by butterflies of these `radices` one after the other, of `threads` of each line.

    A block has `lines` at once, and goes along them; a multiprocessor has `resident` blocks. In shared memory a place
    is left free behind every `gap` numbers; 0: nowhere.
    """

    radices: tuple[int, ...]
    threads: int
    lines: int
    gap: int
    resident: int


@dataclass(frozen=True)
class InterleavingConfiguration(Configuration):
    """Threads a block, each with one place of every phase."""

    threads: int


AnyConfiguration = (
    ElementwiseConfiguration
    | RowsConfiguration
    | ColumnsConfiguration
    | ContractionConfiguration
    | DirectConfiguration
    | SkinnyConfiguration
    | HopperConfiguration
    | BlackwellConfiguration
    | AttentionConfiguration
    | HopperAttentionConfiguration
    | AttentionGradientConfiguration
    | InterleavingConfiguration
    | ScansConfiguration
    | ScattersConfiguration
    | AtomicsConfiguration
    | SelectionConfiguration
    | TransformsConfiguration
    | WindowsConfiguration
)

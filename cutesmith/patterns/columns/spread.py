"""How a configuration spreads rows over threads: what `plan_columns` of the rendered kernel decides when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.columns.configuration import ColumnsConfiguration
from cutesmith.patterns.rows.spread import REGISTER_BYTES
from cutesmith.runtime.tiling import Tiling, power_of_two

NARROWEST = 4
"""Lanes side by side at least: with vectors of 16 bytes those are two sectors of 32 bytes.

Shorter vectors have as many more lanes, here and in a configuration's `lanes`, and as many loads in flight as others,
for which a block has more threads. Sums of single float32, 4096 in rows of 4095, on an H100: 3807 µs by 32 lanes and
256 threads, 3725 by 128 lanes, 3151 by 1024 threads, 3106 with 8 loads in flight instead of 32; eager 3034.
"""

ENOUGH_BLOCKS = 264
"""Two for each SM of an H200: with fewer, blocks are made narrower and get more threads."""

MOST_LANES = 1024
"""Of a block."""


def widest_lanes(rows: int, vector: int) -> int:
    """How many lanes side by side leave `ENOUGH_BLOCKS` blocks of vectors of `rows`; 0 where no number does.

    The traced rows decide it, not those of a call: they are the ones that a kernel is timed with, and a call with fewer
    of them, as an emulated GPU executes it, takes the same code.
    """
    return min(MOST_LANES, power_of_two(rows // (ENOUGH_BLOCKS * vector) + 1) // 2)


@dataclass(frozen=True)
class Spread:
    """A block has `lanes` vectors of rows and `parts` threads for each, which hold `blocks` x `chunks` columns."""

    lanes: int
    parts: int
    chunks: int
    blocks: int

    @property
    def threads(self) -> int:
        """A block's."""
        return self.lanes * self.parts

    @property
    def held(self) -> int:
        """Columns that a block has in registers at once."""
        return self.parts * self.chunks


def spread_columns(
    columns: int, neighbours: int, vector: int, enough: int, c: ColumnsConfiguration, *, again: bool
) -> Spread:
    """Of `neighbours` vectors of rows side by side; `enough`: `widest_lanes`; `again`: several visits read something.

    The template `columns.py.j2` holds the same rules for the sizes of a call.
    """
    held, widest, shorter = max(1, c.resident_elements // vector), power_of_two(neighbours), c.vector // vector
    needed, lanes, narrowest = power_of_two(-(-columns // held)), min(c.lanes * shorter, widest), NARROWEST * shorter
    while lanes > narrowest and lanes > enough * shorter:
        lanes //= 2
    threads = c.threads if lanes <= enough * shorter else c.max_threads
    parts = min(needed, min(1024, threads * shorter) // lanes)
    if again:
        while lanes > narrowest and lanes * needed > c.max_threads:
            lanes //= 2
        parts = needed if lanes * needed <= c.max_threads else threads // lanes
    while lanes < widest and lanes * parts < c.threads and lanes < enough * shorter:
        lanes *= 2
    parts = max(parts, 32 // lanes)
    chunks, blocks = max(1, -(-columns // parts)), 1
    if chunks > held:
        in_flight = max(1, c.reload_elements // c.vector)
        chunks, blocks = in_flight, -(-chunks // in_flight)
    return Spread(lanes, parts, chunks, blocks)


def columns_tiling(spread: Spread, columns: int, vector: int, item_bytes: int, c: ColumnsConfiguration) -> Tiling:
    """The tiling of vectors of `vector` rows; registers are a lower bound, of the elements that stay between visits."""
    held = spread.chunks * vector * min(item_bytes, REGISTER_BYTES) if spread.blocks == 1 else 0
    return Tiling(
        threads=spread.threads,
        tile=(max(1, columns), spread.lanes * vector),
        vector=vector,
        registers=-(-held // REGISTER_BYTES),
        blocks_per_sm=c.threads_per_sm // spread.threads,
        settings=c.to_dict(),
    )

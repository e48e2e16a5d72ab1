"""Scales of blocks in sm_90a's kernel: which of them a thread needs for its sums of a k-tile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration


@dataclass(frozen=True)
class TileScales:
    """The scales of a factor, "A" or "B" of the kernel, as a thread has them: `count` for its lines of a tile.

    `tensor` is their place among what the launch takes, `is_right` whether they are those of the function's second
    factor. `lines` x `k` elements have one scale, 0: all have. `first` is the line of the thread's scale 0 in units of
    the kernel, `line` how far that of scale `v` is from it; sum `v` of the columns `n` takes the one in `place`.
    """

    side: str
    tensor: int
    is_right: bool
    storage: str
    lines: int
    k: int
    count: int
    first: str
    line: str
    place: str

    def at(self, line: str, k: str, tile_k: int = 1) -> str:
        """The place along the lines of the scale of a line, and that along k of the element `k`, or of the k-tile."""
        along_lines = line if self.lines == 1 else f"{line} // {self.lines}"
        along_k = k if self.k == tile_k else f"{k} // {self.k // tile_k}"
        return f"{along_lines if self.lines else 0}, {along_k if self.k else 0}"


def tile_scales(problem: ContractionProblem, c: HopperConfiguration) -> Iterator[TileScales]:
    """Those of each factor that has some."""
    given = [(at, scales) for at, scales in enumerate(problem.scales) if scales is not None]
    for tensor, (at, scales) in enumerate(given, start=2 + len(problem.indices)):
        side = "A" if at == c.swapped else "B"
        share = _of_rows(scales.lines, c.rows) if side == "A" else _of_columns(scales.lines, c.tile_n)
        yield TileScales(side, tensor, at == 1, scales.matrix.storage, scales.lines, scales.k, *share)


def _of_rows(lines: int, rows: int) -> tuple[int, str, str, str]:
    """A thread has two rows, 8 apart, of each 64 of its warpgroup."""
    if lines % rows == 0:
        return 1, "ROWS", "", "0"
    return rows // 32, "ROWS + lane // 32 * 16 + lane % 32 // 4", " + v % 2 * 8 + v // 2 * 64", "v // 2"


def _of_columns(lines: int, columns: int) -> tuple[int, str, str, str]:
    """A thread has two neighbouring columns of each 8; blocks of whole eights have one scale for all threads."""
    unit = math.gcd(columns, lines)
    if unit % 8:
        return columns // 4, "BN + lane % 4 * 2", " + v % 2 + v // 2 * 8", "v % 2 + n * 2"
    if unit == columns:
        return 1, "BN", "", "0"
    return columns // unit, "BN", f" + v * {unit}", f"n // {unit // 8}"

"""Which tiles a contraction is tried with, the most promising first."""

from __future__ import annotations

import math

from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.pattern_plan import ContractionConfiguration

SM_COUNT = 132
"""Of an H200; the choice between tiles asks how many blocks run at once."""

TILES = (
    (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (32, 64, 1, 4), (64, 32, 4, 1), (32, 32, 2, 2),
    (16, 64, 1, 4), (256, 128, 4, 2), (128, 256, 2, 4),
)  # fmt: skip
"""(m, n, warps over m, warps over n)."""

FMA_TILES = ((64, 64, 2, 4), (32, 32, 2, 2), (128, 64, 4, 2), (16, 64, 1, 4))
LINE_BYTES = 64
"""Of k that a stage holds: two 32-byte sectors for each row of an operand that is contiguous along k."""


def proposals(problem: ContractionProblem) -> list[ContractionConfiguration]:
    """Candidates by predicted waste: edges of tiles, SMs without a block, operands read again by each tile."""
    kind = arithmetic_of(problem)
    tiles = FMA_TILES if kind is Arithmetic.FMA else TILES
    per_line = max(16, LINE_BYTES // ITEM_BYTES[problem.a.dtype]) if kind is not Arithmetic.FMA else 16
    found = [
        ContractionConfiguration(m, n, k, warps_m, warps_n, stages)
        for m, n, warps_m, warps_n in tiles
        for k, stages in ((per_line, 4), (2 * per_line, 3))
    ]
    return sorted(found, key=lambda c: _predicted_cost(problem, c))


def _predicted_cost(problem: ContractionProblem, c: ContractionConfiguration) -> float:
    """Of all waves of blocks: a tile's time grows with its area, and with the lines that it loads for each product."""
    blocks = problem.batches * math.ceil(problem.m / c.tile_m) * math.ceil(problem.n / c.tile_n)
    resident = SM_COUNT * max(1, 8 // (c.warps_m * c.warps_n))
    waves = math.ceil(blocks / resident) * resident
    loads = 1 / c.tile_m + 1 / c.tile_n
    return waves * c.tile_m * c.tile_n * (1 + 64 * loads) * (1.02 if c.stages == 3 else 1.0)

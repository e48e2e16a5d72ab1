"""Which tiles a contraction is tried with, the most promising first."""

from __future__ import annotations

import math

from cutesmith.patterns.contraction.analysis import ContractionProblem, Seen
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.graph.dtypes import ITEM_BYTES

SM_COUNT = 132
"""Of an H200; the choice between tiles asks how many blocks run at once."""

BYTES_PER_SECOND = 4.2e12
"""Of a copy, measured (evals/results/h200)."""

FLOPS_PER_SECOND = {
    Arithmetic.HALF: 400e12,
    Arithmetic.TF32: 200e12,
    Arithmetic.TF32_THRICE: 40e12,
    Arithmetic.FMA: 15e12,
}
"""Of mma.sync: estimates, about 60 % of wgmma's; three of tf32 were measured on an H100 (KernelBench's 1/8)."""

LOADS_PER_SECOND = 16 * 1.7e9
"""Of a multiprocessor, an estimate: 32 lanes, each of which loads and then stores to shared memory."""

GATHERED_AS = 10.0
"""Loads that an element of a window takes as long as: six convolutions on an H100 took 3.7 to 11, thirteen more, of few
channels, 1.3 to 2.5 times what 6 predicted."""

FEW_INSTRUCTIONS = 10
"""Of the function of each sum: times that were measured have as many."""

ENDED_PER_SECOND = 32 * 2.4 * 1.755e9
"""More of them, of a multiprocessor: as in the direct form (`direct.ISSUED`), not measured here."""

TILE_SECONDS = 0.5e-6
"""Of a tile of windows beside its sums: phases of 3 to 12 k took 110 to 165 us on an H100 in 248 waves."""

WAIT_SECONDS = 0.6e-6
"""For a k-tile whose elements are too narrow for cp.async (a 1 x 1 convolution of 1024 channels on an H100)."""

TILES = (
    (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (32, 64, 1, 4), (64, 32, 4, 1), (32, 32, 2, 2),
    (16, 64, 1, 4), (256, 128, 4, 2), (128, 256, 2, 4),
)  # fmt: skip
"""(m, n, warps over m, warps over n)."""

DUAL_TILES = ((128, 128, 2, 4), (256, 64, 4, 2))
"""More of them for two products: a thread has half as many sums of each."""

FMA_TILES = ((64, 64, 2, 4), (32, 32, 2, 2), (128, 64, 4, 2), (16, 64, 1, 4))
LINE_BYTES = 64
"""Of k that a stage holds: two 32-byte sectors for each row of an operand that is contiguous along k."""


def proposals(problem: ContractionProblem) -> list[ContractionConfiguration]:
    """Candidates by predicted waste: edges of tiles, SMs without a block, operands read again by each tile."""
    kind = arithmetic_of(problem)
    tiles = FMA_TILES if kind is Arithmetic.FMA else TILES
    per_line = max(16, LINE_BYTES // ITEM_BYTES[problem.a.dtype]) if kind is not Arithmetic.FMA else 16
    if problem.second is not None:
        tiles = (*DUAL_TILES, *tiles)
    found = [
        ContractionConfiguration(m, n, k, warps_m, warps_n, stages, dual=problem.second is not None)
        for m, n, warps_m, warps_n in tiles
        for k, stages in ((per_line, 4), (2 * per_line, 3))
    ]
    return sorted(found, key=lambda c: _predicted_cost(problem, c))


def predicted_seconds(problem: ContractionProblem, c: ContractionConfiguration) -> float:
    """Whole tiles and their loads in whole waves of blocks, or all bytes, slower for few blocks; without the launch."""
    blocks = problem.batches * problem.tiles_down(c.tile_m) * math.ceil(problem.n / c.tile_n)
    waves, busy = math.ceil(blocks / SM_COUNT), min(1.0, blocks / SM_COUNT)
    flops = 2 * c.tile_m * c.tile_n * problem.k * len(problem.right)
    arithmetic = waves * flops / (FLOPS_PER_SECOND[arithmetic_of(problem)] / SM_COUNT)
    gathered = GATHERED_AS if isinstance(problem.b, Seen) else sum(1 / right.vector() for right in problem.right)
    depth = math.ceil(problem.k / c.tile_k) * c.tile_k
    loads = waves * depth * (c.tile_m / problem.a.vector() + c.tile_n * gathered) / LOADS_PER_SECOND
    loads += waves * TILE_SECONDS if isinstance(problem.b, Seen) else 0.0
    more = max(0, problem.epilogue_instructions - FEW_INSTRUCTIONS)
    ends = waves * c.tile_m * c.tile_n * more / ENDED_PER_SECOND
    narrow = any(side.vector() * ITEM_BYTES[side.dtype] < 4 for side in (problem.a, *problem.right))
    waits = math.ceil(problem.k / c.tile_k) * WAIT_SECONDS if narrow else 0.0
    return max(arithmetic + loads + ends, waits, problem.graph.moved_bytes / (BYTES_PER_SECOND * max(busy, 1e-3)))


def why(problem: ContractionProblem, c: ContractionConfiguration) -> str:
    """A sentence: the tiles and their waves, by which the configurations are ordered."""
    tiles = problem.tiles_down(c.tile_m) * math.ceil(problem.n / c.tile_n)
    blocks, resident = problem.batches * tiles, SM_COUNT * _blocks_at_once(c)
    shape = f"{problem.m} x {problem.n} x {problem.k}" + (f", {problem.batches} times" if problem.batches > 1 else "")
    told = f"{shape}: {blocks} tiles of {c.tile_m} x {c.tile_n} fill {blocks / resident:.3g} waves of {resident} blocks"
    return f"{told}, {c.warps_m * c.warps_n} warps each; {c.stages} stages of {c.tile_k} of k are in flight."


def _blocks_at_once(c: ContractionConfiguration) -> int:
    """Of a multiprocessor."""
    return max(1, 8 // (c.warps_m * c.warps_n))


def _predicted_cost(problem: ContractionProblem, c: ContractionConfiguration) -> float:
    """Of all waves of blocks: a tile's time grows with its area, and with the lines that it loads for each product."""
    blocks = problem.batches * problem.tiles_down(c.tile_m) * math.ceil(problem.n / c.tile_n)
    resident = SM_COUNT * _blocks_at_once(c)
    waves = math.ceil(blocks / resident) * resident
    columns = c.tile_n * len(problem.right)
    loads = 1 / c.tile_m + 1 / columns
    return waves * c.tile_m * columns * (1 + 64 * loads) * (1.02 if c.stages == 3 else 1.0)

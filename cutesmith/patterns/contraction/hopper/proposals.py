"""Which tiles sm_90a's kernel is tried with, the most promising first, by a model of its time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, SmVersion, parse_arch
from cutesmith.patterns.contraction.analysis import ContractionProblem, Matrix, Seen
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.hopper.legality import (
    can_join,
    copied_factors,
    item_bytes,
    moved_outputs,
    other_bytes,
    refusals,
    shared_bytes,
    stage_bytes,
)
from cutesmith.patterns.graph.attributes import ShortSums
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.pattern_plan import HopperConfiguration as Tiles

FEW_ROWS = 128
"""Of the result: up to as many are tried as columns of tiles."""

WIDE = 64
"""Columns of a tile that leave at once, where 32 are not all."""

MOST_STAGES = 10
MOST_CANDIDATES = 14

CLUSTERS_AT_ONCE = {1: 132, 2: 66, 4: 30, 8: 13}
"""How many clusters of so many blocks run at once on an H200 of 132 multiprocessors."""

# Fitted to the medians of 27 sizes with up to 31 configurations each on an H200 (evals/results/h200/gemm).
LAUNCH_SECONDS = 8.1e-6
"""As a pair of events measures it."""
CLOCK = 1.87e9
LOADED_BYTES = 74.0
"""That a multiprocessor loads from L2 in a cycle."""
STEP_CYCLES = 100.0
"""Of a k-tile for its barriers."""
WINDOW_CYCLES = 150.0
"""More for windows, which TMA reads pixel by pixel: tiles of 192 positions beat those of 128 on an H100."""
PARTS_CYCLES = 700.0
"""Of a k-tile of float32, beside its products, where the kernel splits (medians of four sizes on an H100)."""
TILE_CYCLES = 520.0
EPILOGUE_CYCLES = 11_500.0
"""For 128 x 192 sums of a warpgroup, 32 columns at a time; hidden behind the other one where they take turns."""
ROUNDS_SHARE = 0.7
"""Of the epilogue that the rounds take, whatever their columns: an estimate."""
SPLIT_CYCLES = 2300.0
"""For each doubling of the blocks that add up a tile."""
BANDWIDTH = 3.7e12
MOST_FLOPS = 1090e12
MOST_FLOPS_OF_FLOAT8 = 1700e12
"""An estimate, within 5 % of what large products took on an H100 (evals/results/h100)."""
COPIED_AT_ONCE = 256
"""Elements of a line that a warp copies."""
COPY_SECONDS = 3e-6
"""Of a launch that copies a factor, beside its bytes."""
SHARPNESS = 3.8
"""Of the maximum of the three terms below: the exponent of a norm."""


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a configuration in seconds, and the terms that it comes from.

    `waves`: how often all multiprocessors work at once, the last time partly; `busy`: which part of that is work.
    `bound`: what the time is made of.
    """

    seconds: float
    tiles: int
    waves: int
    busy: float
    bound: str


def proposals(problem: ContractionProblem, sm: SmVersion, most: int = MOST_CANDIDATES) -> list[Tiles]:
    """The configurations that can be a kernel, the least predicted time first; no more than `most`.

    Of equals, tiles that share B come first where factors are float8: 0.6 % faster on an H100 (evals/results/h100).
    """
    typed = ((form, blocks) for c, blocks in _candidates(problem) for form in _for_dtype(problem, c))
    forms = (_filled(problem, form, sm, blocks) for c, blocks in typed for form in _wide(c))
    found = [c for c in dict.fromkeys(forms) if not any(refusals(problem, c, sm))]
    shares = arithmetic_of(problem) is Arithmetic.FLOAT8
    return sorted(found, key=lambda c: (predict(problem, c).seconds, shares and c.cluster_m == 1))[:most]


def _candidates(problem: ContractionProblem) -> Iterator[tuple[Tiles, int]]:
    """Tiles, and how many blocks of them share a multiprocessor."""
    if isinstance(problem.b, Seen):
        joins = (False, True) if can_join(problem) else (False,)
        channels = problem.k // math.prod(problem.b.windows.taps)
        depths = [depth for depth in (64, 32, 16) if depth == 64 or channels % (2 * depth)]  # the taps are loaded apart
        for tiles, joined, depth in itertools.product((*_square(), *_few_columns()), joins, depths):
            if tiles.cluster_n == 1:
                yield replace(tiles, swapped=True, joined=joined, tile_k=depth), 1
        return
    for tiles in (*_square(), *_few_columns(), *(_few_rows(problem.m) if problem.m <= FEW_ROWS else ())):
        yield from ((tiles, blocks) for blocks in ((1, 2) if tiles.warpgroups == 1 else (1,)))


def _for_dtype(problem: ContractionProblem, c: Tiles) -> Iterator[Tiles]:
    """The same tile for the factors' type: warpgroups share it where sums of a k-tile are apart.

    Numbers of float32 are split into parts, by the kernel or ahead; where they may be rounded to tf32, two will do.
    """
    arithmetic = arithmetic_of(problem)
    if arithmetic in (Arithmetic.TF32, Arithmetic.TF32_THRICE):
        split = replace(c, tile_k=32, pingpong=False, parts=3 if arithmetic is Arithmetic.TF32_THRICE else 2)
        yield from (split, replace(split, ahead=True))
    elif arithmetic is Arithmetic.FLOAT8:
        yield replace(c, tile_k=math.gcd(128, problem.scaled_k), pingpong=False, promoted=True)
        if problem.short_sums is ShortSums.WHOLE:
            yield replace(c, tile_k=128)
    else:
        yield c


def _wide(c: Tiles) -> Iterator[Tiles]:
    """The same with more columns at once where nothing hides their leaving: each round waits for stores and barriers.

    Sums of a single strip are not in flight from one k-tile to the next, unless they are apart.
    """
    yield c
    serves = (c.tile_n > WIDE or c.sums_apart) and c.warpgroups == 2 and c.split == 1  # no gain on an H100 elsewhere
    if not c.pingpong and c.rows == 64 and c.tile_n % WIDE == 0 and serves:
        yield replace(c, columns=WIDE)


def _square() -> Iterator[Tiles]:
    """Tiles for results that give every multiprocessor some."""
    for m, n in ((128, 192), (128, 128), (128, 160), (128, 208), (192, 128), (64, 256)):
        tiles = Tiles(m, n, 64, 0, pingpong=True, columns=32 if n % 32 == 0 else 16)
        yield from (tiles, replace(tiles, cluster_m=2), replace(tiles, cluster_n=2))
    for m, n in ((128, 256), (256, 128)):
        tiles = Tiles(m, n, 64, 0)
        yield from (tiles, replace(tiles, cluster_m=2), replace(tiles, cluster_n=2))


def _few_columns() -> Iterator[Tiles]:
    """Smaller tiles, or a tile for several blocks, where there are fewer large ones than multiprocessors."""
    for n in (64, 96, 128):
        tiles = Tiles(128, n, 64, 0)
        yield from (tiles, replace(tiles, cluster_m=2), replace(tiles, cluster_n=2))
        yield from (replace(tiles, split=split) for split in (2, 4))


def _few_rows(rows: int) -> Iterator[Tiles]:
    """The transposed result: memory speed needs many bytes in flight, and blocks enough, not wide tiles."""
    n = next(n for n in (16, 32, 64, 96, 128) if n >= rows)
    for split in (1, 2, 4, 8):
        columns = min(32, n)
        yield Tiles(64, n, 128, 0, warpgroups=1, split=split, columns=columns, swapped=True)
        yield Tiles(128, n, 64, 0, split=split, columns=columns, swapped=True)
        yield Tiles(128, n, 128, 0, split=split, columns=columns, swapped=True)


def _filled(problem: ContractionProblem, c: Tiles, sm: SmVersion, blocks_per_sm: int) -> Tiles:
    """As many stages as fit when so many blocks share a multiprocessor; several k-tiles each."""
    budget = sm.smem_per_block if blocks_per_sm == 1 else sm.smem_per_sm // blocks_per_sm - RESERVED_SMEM_PER_BLOCK
    stages = (budget - other_bytes(problem, c)) // stage_bytes(problem, c)
    return replace(c, stages=max(0, min(stages, MOST_STAGES)))


def blocks_at_once(problem: ContractionProblem, c: Tiles) -> int:
    """How many blocks share a multiprocessor of Hopper."""
    sm = parse_arch("sm_90a").sm
    memory = sm.smem_per_sm // (shared_bytes(problem, c) + RESERVED_SMEM_PER_BLOCK)
    registers = sm.registers_per_sm // (c.threads * 128)
    return max(1, min(memory, registers if c.sums_per_thread <= 64 else 1, 2))


def predict(problem: ContractionProblem, c: Tiles) -> Prediction:
    """What a configuration takes: waves of tiles, as long as their wgmma or their loads; or all bytes; or all flops."""
    images = problem.batches if c.joined else 1  # that make up the rows of one product
    rows, columns = (images * problem.n, problem.m) if c.swapped else (problem.m, problem.n)
    most_flops = MOST_FLOPS_OF_FLOAT8 if arithmetic_of(problem) is Arithmetic.FLOAT8 else MOST_FLOPS
    share, at_once = c.cluster_m * c.cluster_n, blocks_at_once(problem, c)
    tiles = math.ceil(rows / (c.tile_m * c.cluster_m)) * math.ceil(columns / (c.tile_n * c.cluster_n)) * share
    tiles *= problem.batches // images
    resident = CLUSTERS_AT_ONCE[share * c.split] * share * c.split * at_once
    waves = max(1, math.ceil(tiles * c.split / resident))  # a result without elements has no tile
    # A wgmma of 64 x n x 32 bytes takes n / 2 cycles, or as long as its operands take to read, 128 bytes a cycle.
    depth = 32 if arithmetic_of(problem) is Arithmetic.FLOAT8 else 16
    multiply = c.tile_m / 64 * max(c.tile_n / 2, 16 + c.tile_n / 4) * c.tile_k / depth * len(c.products)
    load = (c.tile_m / c.cluster_n + c.tile_n / c.cluster_m) * c.tile_k * item_bytes(problem, c) / LOADED_BYTES
    step = STEP_CYCLES + (PARTS_CYCLES if c.splits else 0.0)
    step += WINDOW_CYCLES if isinstance(problem.b, Seen) else 0.0
    own = _steps(problem, c) / c.split * (max(multiply, load) * at_once + step) + TILE_CYCLES
    rounds = ROUNDS_SHARE * 32 / max(32, c.columns)
    own += 0.0 if c.pingpong else EPILOGUE_CYCLES * (1 - ROUNDS_SHARE + rounds) * c.rows * c.tile_n / (128 * 192)
    own += SPLIT_CYCLES * math.log2(c.split)
    work = {
        "loads from L2" if load > multiply else "multiplications": waves * own / CLOCK,
        "bytes of device memory": (problem.graph.moved_bytes + sum(_more_bytes(problem, c))) / BANDWIDTH,
        "the card's power": 2 * problem.m * problem.n * problem.k * problem.batches * len(c.products) / most_flops,
    }
    seconds = LAUNCH_SECONDS + sum(part**SHARPNESS for part in work.values()) ** (1 / SHARPNESS)
    seconds += sum(COPY_SECONDS + moved / BANDWIDTH for moved in _bytes_beside(problem, c))
    busy = tiles * c.split / (waves * resident)
    return Prediction(seconds, tiles, waves, busy, max(work, key=lambda name: work[name]))


def _more_bytes(problem: ContractionProblem, c: Tiles) -> Iterator[float]:
    """What the kernel reads beside the function's own bytes: parts are half as long again as their number."""
    if c.ahead:
        yield from (side.bytes * (c.parts / 2 - 1) for side in (problem.a, problem.b))


def _bytes_beside(problem: ContractionProblem, c: Tiles) -> Iterator[float]:
    """What each launch beside the kernel moves: it copies or splits a factor, or moves rows of a result together."""
    size = problem.batches * problem.m * problem.n
    yield from (2.0 * size * ITEM_BYTES[output.dtype] for output in moved_outputs(problem, c))
    if c.ahead:
        yield from (side.bytes * (1 + c.parts / 2) for side in (problem.a, problem.b))
    else:
        yield from (2 * side.bytes * _copied_for_one(side) for side in copied_factors(problem))


def _copied_for_one(side: Matrix | Seen) -> float:
    """Elements that a copy takes the time of, for each: a warp has a whole piece of a line at once, however short."""
    if isinstance(side, Seen):
        return 1.0
    length = side.shape[side.contiguous or -1]
    return math.ceil(length / COPIED_AT_ONCE) * COPIED_AT_ONCE / max(1, length)


def _steps(problem: ContractionProblem, c: Tiles) -> float:
    """Of k: a window's taps are loaded one by one."""
    if problem.windows is None:
        return problem.k / c.tile_k
    taps = math.prod(problem.windows.taps)
    return taps * math.ceil(problem.k // taps / c.tile_k)


def reasons(problem: ContractionProblem, c: Tiles) -> list[str]:
    """Sentences for the head of the kernel: why this configuration, and what time is predicted."""
    found = predict(problem, c)
    shape = f"{problem.m} x {problem.n} x {problem.k}" + (f", {problem.batches} times" if problem.batches > 1 else "")
    transposed = " of the transposed result" if c.swapped else ""
    split = f", each by {c.split} blocks," if c.split > 1 else ""
    lines = [
        f"{shape}: {found.tiles} tiles of {c.tile_m} x {c.tile_n}{transposed}{split} keep 132 multiprocessors busy for "
        f"{found.busy:.0%} of {found.waves} wave{'s' if found.waves > 1 else ''}.",
        f"Predicted on an H200: {found.seconds * 1e6:.0f} us, mostly {found.bound}."
        f" {c.stages} stages of {c.tile_k} of k are in flight.",
    ]
    if c.cluster_m * c.cluster_n > 1:
        lines.append("Two blocks of a cluster load what they share once: less traffic from L2, and less power.")
    if c.joined:
        lines.append("Images follow each other in tiles: the rows of one alone would leave them half empty.")
    if moved_outputs(problem, c):
        lines.append("A launch after it moves rows of the result together, which TMA stores apart.")
    if c.ahead:
        lines.append("Launches before it split each number of both factors into parts.")
        return lines
    for matrix in copied_factors(problem):
        lines.append(f"{matrix.argument} is copied first, {matrix.bytes / 1e6:.3g} MB: TMA cannot read it in place.")
    return lines

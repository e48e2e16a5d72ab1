"""Which tiles sm_90a's kernel is tried with, the most promising first, by a model of its time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, SmVersion
from cutesmith.patterns.contraction.analysis import ContractionProblem, Seen
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import (
    from_registers,
    operand_registers,
    other_bytes,
    refusals,
    stage_bytes,
    turned_factors,
)
from cutesmith.patterns.contraction.hopper.prediction import predict
from cutesmith.patterns.contraction.im2col import can_join
from cutesmith.patterns.graph.attributes import ShortSums
from cutesmith.patterns.graph.dtypes import ITEM_BYTES

FEW_ROWS = 128
"""Of the result: up to as many are tried as columns of tiles."""

WIDE = 64
"""Columns of a tile that leave at once, where 32 are not all."""

NARROW = 32
"""Columns of tiles for windows of no more outputs. By 16, eight channels of float32 deep, a load is misaligned."""

MOST_STAGES = 10
MOST_CANDIDATES = 14


def proposals(problem: ContractionProblem, sm: SmVersion, most: int = MOST_CANDIDATES) -> list[Tiles]:
    """The configurations that can be a kernel, the least predicted time first; no more than `most`.

    Of equals, tiles that share B come first where factors are float8: 0.6 % faster on an H100 (evals/results/h100).
    """
    shapes = _candidates(problem) if problem.second is None else map(_dual, _candidates(problem))
    typed = ((form, blocks) for c, blocks in shapes for form in _for_dtype(problem, c))
    forms = (_filled(problem, form, sm, blocks) for c, blocks in typed for form in (*_wide(c), *_narrow(problem, c)))
    found = [c for c in dict.fromkeys(forms) if not any(refusals(problem, c, sm))]
    shares = arithmetic_of(problem) is Arithmetic.FLOAT8
    return sorted(found, key=lambda c: (predict(problem, c).seconds, shares and c.cluster_m == 1))[:most]


def _candidates(problem: ContractionProblem) -> Iterator[tuple[Tiles, int]]:
    """Tiles, and how many blocks of them share a multiprocessor."""
    if isinstance(problem.b, Seen):
        joins = (False, True) if can_join(problem) else (False,)
        channels = problem.k // math.prod(problem.b.windows.taps)
        unit = 1 if ITEM_BYTES[problem.a.dtype] == 2 else 2
        depths = [d for d in (64, 32, 16) if d == 64 or channels % (2 * d // unit)]  # the taps are loaded apart
        shapes = (*_square(), *_few_columns(), *_few_outputs(problem.m))
        for tiles, joined, depth in itertools.product(shapes, joins, depths):
            if tiles.cluster_n == 1:
                yield replace(tiles, swapped=True, joined=joined, tile_k=depth), 1
        return
    rows = math.ceil(problem.m / max(1, problem.groups))
    if problem.rounds:
        yield from ((tiles, blocks) for tiles in _whole_rows(problem.n * len(problem.right)) for blocks in (1, 2))
    for tiles in (*_square(), *_few_columns(), *(_few_rows(rows) if rows <= FEW_ROWS else ())):
        yield from ((tiles, blocks) for blocks in ((1, 2) if tiles.warpgroups == 1 else (1,)))


def _dual(candidate: tuple[Tiles, int]) -> tuple[Tiles, int]:
    """The same with as many sums, or those of a few rows with twice as many, where two products share a factor."""
    c, blocks = candidate
    half = c.tile_n if c.swapped else c.tile_n // 2
    return replace(c, dual=True, tile_n=half, columns=min(c.columns, 32 if half % 32 == 0 else 16)), blocks


def _for_dtype(problem: ContractionProblem, c: Tiles) -> Iterator[Tiles]:
    """The same tile for the factors' type: warpgroups share it where sums of a k-tile are apart.

    Numbers of float32 are split into parts, by the kernel or ahead. Where they may be rounded to tf32, wgmma takes them
    whole, as many bytes of k as of 16-bit numbers; what does not lie along k is the left factor or, swapped, the right.
    """
    arithmetic = arithmetic_of(problem)
    if arithmetic is Arithmetic.TF32:
        whole = replace(c, tile_k=c.tile_k // 2)
        for form in (whole, replace(whole, swapped=not c.swapped)) if turned_factors(problem, whole) else (whole,):
            yield form
            if form.pingpong and from_registers(problem, form):
                yield replace(form, pingpong=False)
    elif arithmetic is Arithmetic.TF32_THRICE:
        split = replace(c, tile_k=32, pingpong=False, parts=3)
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


def _narrow(problem: ContractionProblem, c: Tiles) -> Iterator[Tiles]:
    """The same with fewer columns at once where operands of a strip wait in registers beside two products' sums."""
    if c.dual and c.columns > 16 and operand_registers(problem, c):
        yield replace(c, columns=16)


def _square() -> Iterator[Tiles]:
    """Tiles for results that give every multiprocessor some."""
    for m, n in ((128, 192), (128, 128), (128, 160), (128, 208), (192, 128), (64, 256)):
        tiles = Tiles(m, n, 64, 0, pingpong=True, columns=32 if n % 32 == 0 else 16)
        yield from (tiles, replace(tiles, cluster_m=2), replace(tiles, cluster_n=2))
    for m, n in ((128, 256), (256, 128), (128, 224)):
        tiles = Tiles(m, n, 64, 0)
        yield from (tiles, replace(tiles, cluster_m=2), replace(tiles, cluster_n=2))


def _few_columns() -> Iterator[Tiles]:
    """Smaller tiles, or a tile for several blocks, where there are fewer large ones than multiprocessors."""
    for n in (64, 96, 128):
        tiles = Tiles(128, n, 64, 0)
        yield from (tiles, replace(tiles, cluster_m=2), replace(tiles, cluster_n=2))
        yield from (replace(tiles, split=split) for split in (2, 4))


def _whole_rows(columns: int) -> Iterator[Tiles]:
    """Low tiles that no other block shares a row of: as many as multiprocessors, where k cannot be divided."""
    n = next(n for n in (32, 64, 96, 128, 192, 256, columns) if n >= columns)
    yield Tiles(64, n, 64, 0, warpgroups=1)
    yield Tiles(64, n, 128, 0, warpgroups=1)
    yield Tiles(128, n, 128, 0)


def _few_outputs(outputs: int) -> Iterator[Tiles]:
    """Narrow tiles where windows have few outputs: TMA takes long to fill lines beyond those with zeros."""
    for m, pingpong in ((256, False), (256, True), (192, True), (128, False), (128, True)):
        if outputs <= NARROW:
            yield Tiles(m, NARROW, 64, 0, pingpong=pingpong)


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

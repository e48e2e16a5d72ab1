"""Which tiles sm_100a's kernel is tried with, the most promising first, by a model of its time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from cutesmith.devices import SmVersion
from cutesmith.patterns.contraction.analysis import ContractionProblem, Seen
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration as Tiles
from cutesmith.patterns.contraction.blackwell.legality import (
    REGISTERS_FOR_STRIP,
    STRIPS,
    TENSOR_COLUMNS,
    other_bytes,
    refusals,
    stage_bytes,
    strip_registers,
)
from cutesmith.patterns.contraction.blackwell.prediction import predict
from cutesmith.patterns.contraction.im2col import can_join
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.window_attributes import Windows

FEW_ROWS = 128
"""Of the result: up to as many are tried as columns of tiles."""

MOST_STAGES = 10
MOST_CANDIDATES = 12


def proposals(problem: ContractionProblem, sm: SmVersion, most: int = MOST_CANDIDATES) -> list[Tiles]:
    """The configurations that can be a kernel, the least predicted time first; no more than `most`."""
    shapes = _candidates(problem) if problem.second is None else map(_dual, _candidates(problem))
    forms = (_filled(problem, _for_dtype(problem, c), sm) for c in shapes)
    found = [c for c in forms if not any(refusals(problem, c, sm))]
    return sorted(found, key=lambda c: predict(problem, c).seconds)[:most]


def _candidates(problem: ContractionProblem) -> Iterator[Tiles]:
    line = 128 // ITEM_BYTES[problem.a.dtype]
    if isinstance(problem.b, Seen):
        yield from _over_windows(problem, problem.b.windows, line)
        return
    for n in (256, 224, 192, 160, 128, 96, 64):
        columns = _widest_strip(problem, n)
        yield Tiles(128, n, line, 0, columns=columns)
        yield Tiles(256, n, line, 0, pair=True, columns=columns)
    if problem.m <= FEW_ROWS:
        n = next(n for n in (16, 32, 64, 96, 128) if n >= problem.m)
        columns = _widest_strip(problem, n)
        yield from (Tiles(128, n, k * line, 0, columns=columns, swapped=True) for k in (1, 2))


def _over_windows(problem: ContractionProblem, windows: Windows, line: int) -> Iterator[Tiles]:
    """Positions are rows of tiles; of few channels a shorter part is read, since taps are loaded apart."""
    channels = problem.k // math.prod(windows.taps)
    depths = [depth for depth in (line, line // 2, line // 4) if depth == line or channels % (2 * depth)]
    for n, depth, joined in itertools.product((256, 192, 128, 96, 64), depths, (False, True)):
        if not joined or can_join(problem):
            yield Tiles(128, n, depth, 0, columns=_widest_strip(problem, n), swapped=True, joined=joined)


def _dual(c: Tiles) -> Tiles:
    """The same for two products: of wide tiles, tensor memory then holds the sums of one alone."""
    return replace(c, dual=True, accumulators=min(c.accumulators, TENSOR_COLUMNS // (2 * c.tile_n)))


def _for_dtype(problem: ContractionProblem, c: Tiles) -> Tiles:
    """The same tile for the factors' type: exact products of float32 are those of three parts, 32 of k at a time."""
    if arithmetic_of(problem) is not Arithmetic.TF32_THRICE:
        return c
    accumulators = min(4, TENSOR_COLUMNS // c.tile_n)
    return replace(c, tile_k=32, columns=min(c.columns, 32), accumulators=accumulators, parts=3)


def _widest_strip(problem: ContractionProblem, n: int) -> int:
    """Columns of a tile that leave at once: 128 bytes of 16-bit results, unless registers spill."""
    whole = [columns for columns in STRIPS if n % columns == 0]
    fitting = (columns for columns in whole if strip_registers(problem, columns) <= REGISTERS_FOR_STRIP)
    return next(fitting, whole[-1])


def _filled(problem: ContractionProblem, c: Tiles, sm: SmVersion) -> Tiles:
    """As many stages as fit."""
    stages = (sm.smem_per_block - other_bytes(problem, c)) // stage_bytes(problem, c)
    return replace(c, stages=max(0, min(stages, MOST_STAGES)))

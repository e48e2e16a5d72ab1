"""Which ways to lay lines over threads are tried, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cutesmith.patterns.configurations import ScansConfiguration
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.scans.analysis import ScanProblem
from cutesmith.runtime.tiling import power_of_two

BLOCK_WARPS = 4
"""Of a block whose lines are short: blocks of 128 threads start and end at their own pace."""

SHAPES = ((4, 8), (2, 8), (2, 16), (1, 8), (4, 4), (8, 4), (4, 16))
"""(vectors a thread, warps along a long line): no GPU has ordered them yet. A thread of four loads has as many bytes
on their way as the 2 x 128 threads of the fastest copy need."""


DECOUPLED = ((16, 4), (8, 8), (4, 8), (4, 16), (8, 4))
"""(vectors a thread, warps) of tiles that look back: what a multiprocessor holds while blocks wait decides. One row of
64 million took 221, 228, 254, 246 and 230 us on an H100, of float64 219, 232, 251, 257 and 229."""

WIDE = ((8, 2, 8), (8, 4, 4), (16, 2, 4))
"""(elements of a vector, vectors, warps) for log-sum-exps of float32, not timed yet: lanes are joined once a vector,
so that an element takes 49, 39 and 34 instructions where (4, 4, 8) takes 59. Accesses of 16 bytes lie apart then."""

HALF = (2, 16, 8)
"""The same for extremes with places: the stores of places are neighbours. 437 us for one row of 64 million on an H100,
where (4, 16, 4) took 472 and (4, 8, 8) 505."""

LOOK_BACK_SECONDS, LOOK_BACK_RATE = 6e-6, 1.27
"""Of the launch that clears what tiles publish, and times as long as a copy: 231 us for one row of 64 million where a
copy takes 182, on an H100. Blocks that stay, and load their next tile while they scan one, took 350; perhaps as a tile
that is taken early waits for the one before it in its block, and all later ones wait for it: nothing was profiled."""

RESIDENT = 132 * 1024
"""Threads of all multiprocessors, of blocks that go along lines."""


def proposals(problem: ScanProblem) -> list[ScansConfiguration]:
    """Candidates by the bytes on their way: every one is correct for every size and layout."""
    dim, length = problem.scan.dim, problem.shape[problem.scan.dim]
    lines = math.prod(size for at, size in enumerate(problem.shape) if at != dim)
    if _is_innermost(problem):
        vector = min(16 // max(1, min(_item_bytes(problem))), 8)
        lanes = min(32, power_of_two(math.ceil(length / vector)))
        usual = [_along(length, vector, lanes, vectors, warps) for vectors, warps in SHAPES]
        apart = _decoupled(problem, vector)
        memory = lines * length * sum(_item_bytes(problem)) / BYTES_PER_SECOND
        is_quick = _along_seconds(usual[0], lines, length, memory) <= LOOK_BACK_RATE * memory + LOOK_BACK_SECONDS
        return _unique([*usual, *apart] if is_quick else [*apart, *usual])
    return _unique(_along(length, 1, 1, vectors, warps) for vectors, warps in _column_shapes(lines))


def _decoupled(problem: ScanProblem, vector: int) -> list[ScansConfiguration]:
    """Tiles that look back; a recurrence, whose products may leave the range of their type, walks along its lines."""
    if problem.is_linear:
        return []
    shapes = [(vector, *shape) for shape in DECOUPLED]
    if problem.is_exponential:  # one row of 64 million: 472 us by 16 vectors, 344 by 8, 290 by 4, now 278
        shapes.sort(key=lambda shape: shape[1])
        shapes[1:1] = WIDE if problem.state == "Float32" else ()
    elif problem.is_placed and vector > HALF[0]:
        shapes.insert(0, HALF)
    return [ScansConfiguration(32, warps, 1, vector, vectors, decoupled=True) for vector, vectors, warps in shapes]


def _along_seconds(c: ScansConfiguration, lines: int, length: int, memory: float) -> float:
    """How long blocks take that go along lines of which memory alone takes `memory` seconds.

    On an H100 a step of one block takes 0.62 us and 0.1 for each vector of a thread (evals/results/h100/table/scans).
    """
    turns = math.ceil(lines / (c.across * (32 // c.lanes) * (RESIDENT // c.threads)))
    return max(memory, turns * math.ceil(length / c.tile) * (0.62e-6 + 0.1e-6 * c.vectors))


def _is_innermost(problem: ScanProblem) -> bool:
    """Whether neighbours along the scan are neighbours in memory: those of what is scanned, else of the result."""
    dim = problem.scan.dim
    whole = [node for node in problem.graph.nodes() if node.op == "input" and node.shape == problem.scanned_shape]
    if whole:
        return Input.of(whole[0]).stride[dim] == 1 or problem.shape[dim] == 1
    return all(size == 1 for size in problem.shape[dim + 1 :])


def _item_bytes(problem: ScanProblem) -> list[int]:
    whole = [node for node in problem.graph.nodes() if node.op == "input" and node.shape == problem.scanned_shape]
    return [ITEM_BYTES[node.dtype] for node in (*whole, *problem.graph.outputs) if node.dtype != "bool"] or [1]


def _column_shapes(lines: int) -> list[tuple[int, int]]:
    """Few lines need many warps along each, so that a multiprocessor has enough loads on their way."""
    few = lines < 132 * 32 * 4
    # 32768 lines of 4096 took 387 us by 4 vectors and 8 warps on an H100, 420 by 8 and 8; 65536 of 1024 199 and 202.
    return [(8, 16), (8, 8), (16, 16), (4, 16)] if few else [(4, 8), (8, 8), (8, 4), (8, 16), (16, 4)]


def _along(length: int, vector: int, lanes: int, vectors: int, warps: int) -> ScansConfiguration:
    """No more of anything than the line is long; what is left of a block takes other lines."""
    vectors = min(vectors, power_of_two(math.ceil(length / (lanes * vector))))
    along = min(warps, power_of_two(math.ceil(length / (lanes * vector * vectors))))
    return ScansConfiguration(lanes, along, max(1, BLOCK_WARPS // along), vector, vectors)


def _unique(found: Iterable[ScansConfiguration]) -> list[ScansConfiguration]:
    return list(dict.fromkeys(found))

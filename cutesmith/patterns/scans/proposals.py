"""Which ways to lay lines over threads are tried, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.pattern_plan import ScansConfiguration
from cutesmith.patterns.scans.analysis import ScanProblem
from cutesmith.runtime.tiling import power_of_two

BLOCK_WARPS = 4
"""Of a block whose lines are short: blocks of 128 threads start and end at their own pace."""

SHAPES = ((4, 8), (2, 8), (2, 16), (1, 8), (4, 4), (8, 4), (4, 16))
"""(vectors a thread, warps along a long line): no GPU has ordered them yet. A thread of four loads has as many bytes
on their way as the 2 x 128 threads of the fastest copy need."""


LONG_LINE, FEW_LINES = 1 << 16, 64
"""On an H100 a block that goes along a line moves 32 GB/s, and tiles that look back 2.3 TB/s (evals/results/h100)."""

DECOUPLED = ((8, 8), (4, 8), (8, 4), (4, 16))
"""(vectors a thread, warps) of tiles that look back: what a multiprocessor holds while blocks wait decides."""


def proposals(problem: ScanProblem) -> list[ScansConfiguration]:
    """Candidates by the bytes on their way: every one is correct for every size and layout."""
    dim, length = problem.scan.dim, problem.shape[problem.scan.dim]
    lines = math.prod(size for at, size in enumerate(problem.shape) if at != dim)
    if _is_innermost(problem):
        vector = min(16 // max(1, min(_item_bytes(problem))), 8)
        lanes = min(32, power_of_two(math.ceil(length / vector)))
        usual = [_along(length, vector, lanes, vectors, warps) for vectors, warps in SHAPES]
        return _unique([*_decoupled(problem, vector, lines), *usual])
    return _unique(_along(length, 1, 1, vectors, warps) for vectors, warps in _column_shapes(lines))


def _decoupled(problem: ScanProblem, vector: int, lines: int) -> list[ScansConfiguration]:
    """For lines that are too few for all multiprocessors, and so long that a block would go along them for long.

    One word holds what a tile publishes, so that it is a float32.
    """
    long = problem.shape[problem.scan.dim] >= LONG_LINE and lines <= FEW_LINES
    if not long or problem.companion or problem.state != "Float32":
        return []
    return [ScansConfiguration(32, warps, 1, vector, vectors, decoupled=True) for vectors, warps in DECOUPLED]


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
    return [(8, 16), (8, 8), (16, 16), (4, 16)] if few else [(8, 8), (8, 4), (4, 8), (8, 16), (16, 4)]


def _along(length: int, vector: int, lanes: int, vectors: int, warps: int) -> ScansConfiguration:
    """No more of anything than the line is long; what is left of a block takes other lines."""
    vectors = min(vectors, power_of_two(math.ceil(length / (lanes * vector))))
    along = min(warps, power_of_two(math.ceil(length / (lanes * vector * vectors))))
    return ScansConfiguration(lanes, along, max(1, BLOCK_WARPS // along), vector, vectors)


def _unique(found: Iterable[ScansConfiguration]) -> list[ScansConfiguration]:
    return list(dict.fromkeys(found))

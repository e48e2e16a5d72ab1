"""Which ways to lay lines over threads are tried, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cutesmith.devices import SmVersion
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.scans.analysis import ScanProblem
from cutesmith.patterns.scans.configuration import ScansConfiguration
from cutesmith.runtime.tiling import power_of_two

BLOCK_WARPS = 4
"""Of a block whose lines are short: blocks of 128 threads start and end at their own pace."""

SHAPES = ((4, 8), (2, 8), (2, 16), (1, 8), (4, 4), (8, 4), (4, 16))
"""(vectors a thread, warps along a long line): no GPU has ordered them yet. A thread of four loads has as many bytes
on their way as the 2 x 128 threads of the fastest copy need."""


ROUNDS = ((5, 16, 1), (5, 8, 2), (7, 8, 2), (9, 8, 1), (3, 16, 2), (3, 8, 2), (3, 8, 1))
"""(vectors a thread, warps, blocks of a multiprocessor) of tiles that are at work in rounds.

Lanes that have an odd number of neighbouring vectors read them without bank conflicts. One row of 64 million took
138.9, 140.4, 141.5, 144.3 and 150.2 us by the first five on an H200, where a copy takes 129.7.
"""

PLACED = ((9, 16, 1), (9, 8, 2), (11, 16, 1), (9, 8, 1))
"""The same for places of extremes, by vectors of which the places have 16 bytes: stores of neighbouring lanes are
neighbours then. 282.5, 286.1 and 286.6 us there, where a copy takes 257.7; (5, 8, 2) by longer vectors 347.8."""

LEAD = 2
"""Rounds from what a tile gives to its results: what all blocks publish is there by then. By 1 a row took 169.8 us."""

MOST_STAGES = 8

SMEM_BESIDE_STAGES = 6144
"""Bytes of a block: the GPU's own, barriers, and what warps give."""

ROUNDS_SECONDS, ROUNDS_RATE = 6e-6, 1.08
"""Of the launch that clears what tiles publish, and times as long as a copy."""

RESIDENT = 132 * 1024
"""Threads of all multiprocessors, of blocks that go along lines."""


def proposals(problem: ScanProblem, sm: SmVersion) -> list[ScansConfiguration]:
    """Candidates by the bytes on their way: every one is correct for every size and layout."""
    lines, length = _lines(problem)
    if _is_innermost(problem):
        vector = min(16 // max(1, min(_item_bytes(problem))), 8)
        lanes = min(32, power_of_two(math.ceil(length / vector)))
        usual = [_along(length, vector, lanes, vectors, warps) for vectors, warps in SHAPES]
        shared = _in_rounds(problem, vector, sm)
        memory = lines * length * sum(_item_bytes(problem)) / BYTES_PER_SECOND
        is_quick = _along_seconds(usual[0], lines, length, memory) <= ROUNDS_RATE * memory + ROUNDS_SECONDS
        return _unique([*usual, *shared] if is_quick else [*shared, *usual])
    return _unique(_along(length, 1, 1, vectors, warps) for vectors, warps in _column_shapes(lines))


def _lines(problem: ScanProblem) -> tuple[int, int]:
    """How many lines there are, and how long each is."""
    dim = problem.scan.dim
    return math.prod(size for at, size in enumerate(problem.shape) if at != dim), problem.shape[dim]


def why(problem: ScanProblem, c: ScansConfiguration) -> str:
    """Sentences: whether a line fits a tile, blocks go along it, or all blocks are at work on it."""
    lines, length = _lines(problem)
    if c.stages:
        tiles = math.ceil(length / c.tile)
        told = f"{lines} line{'s' if lines > 1 else ''} of {length} in {tiles} tiles of {c.tile} each: blocks that go"
        told += " along their lines would leave memory idle, so tiles are at work in all blocks in rounds."
        return f"{told} {c.stages} tiles of a block are in shared memory, blocks on a multiprocessor: {c.resident}."
    of_block = c.across * (32 // c.lanes)
    told = f"A block has {of_block} line{'s' if of_block > 1 else ''} of {lines}, {c.along} of its warps along each:"
    held = f"{c.vectors} x {c.vector} elements a thread"
    steps = math.ceil(length / c.tile)
    takes = "are a whole line" if steps == 1 else f"are {c.tile} of a line's {length}, which takes {steps} steps"
    apart = "" if c.lanes > 1 else " Neighbours in memory are of different lines, so that each lane has its own."
    return f"{told} {held} {takes}.{apart}"


def _in_rounds(problem: ScanProblem, vector: int, sm: SmVersion) -> list[ScansConfiguration]:
    """Tiles that are at work in rounds; a recurrence, whose products may leave the range of their type, walks along."""
    if problem.is_linear or not problem.element.operands:
        return []
    if problem.is_placed:
        vector = max(1, 16 // max(_item_bytes(problem)))
    item = sum(ITEM_BYTES[operand.dtype] for operand in problem.element.operands)
    found = []
    for vectors, warps, resident in PLACED if problem.is_placed else ROUNDS:
        tile = 32 * vector * vectors * warps
        stages = min((sm.smem_per_sm // resident - SMEM_BESIDE_STAGES) // (tile * item), MOST_STAGES)
        if stages >= LEAD + 2:
            found.append(ScansConfiguration(32, warps, 1, vector, vectors, stages, LEAD, resident, sm.tma))
    return found


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

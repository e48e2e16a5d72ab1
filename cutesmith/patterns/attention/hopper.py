"""What sm_90a's kernel of attention can serve, and how it is laid out: TMA, wgmma, weights that stay in registers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, SmVersion, parse_arch
from cutesmith.patterns.attention.analysis import AttentionProblem
from cutesmith.patterns.attention.band import seen_share
from cutesmith.patterns.attention.configurations import HopperAttentionConfiguration
from cutesmith.patterns.contraction.analysis import Matrix
from cutesmith.patterns.contraction.epilogue import Operand
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.shapes import Shape

TMA_ELEMENTS = 8
"""Addresses and strides of what TMA reads and writes are multiples of 16 bytes: so many 16-bit elements."""

TMA_BYTES = 2 * TMA_ELEMENTS

MOST_TILED_BYTES = 4
"""Of an element of a mask: shared memory holds a tile of those beside the keys."""

MOST_TMA_BATCH_DIMS = 3
"""A tensor map has at most five dimensions."""

BARRIER_BYTES = 512
"""For the barriers of the rings."""

SM_COUNT = 132
"""Of an H200."""

MOST_QUERIES = 128
"""Of a tile."""

FEWEST_KEYS = 1024
"""That are worth a second launch, which adds up the parts."""

REGISTERS = {1: 250, 2: 240}
"""A thread's, by math warpgroups: what the loading warps leave, and a multiple of 8."""

OTHER_REGISTERS = 44
"""Addresses, states of rings, maxima; measured as what ptxas needs beside sums, scores and weights."""

PART_REGISTERS = 16
"""More where keys have two parts. With a mask in memory and heads of 128 the loop has 122 spilled accesses with 160
keys, 30 with 128."""

CONFIGURATIONS = tuple(
    HopperAttentionConfiguration(warpgroups, keys, 2, turns)
    for warpgroups, keys, turns in (
        *((2, keys, True) for keys in (192, 160, 128, 112, 96, 80)),
        *((warpgroups, keys, False) for warpgroups, keys in ((2, 128), (2, 64), (1, 128), (1, 64))),
    )
)
"""On an H200, 4096 queries and keys, heads of 64: 584 us with 128 keys, 587 without turns, 572 with 192 keys, 614 with
three warpgroups of 96. Heads of 128: 794, 799 without turns, 786 with 160 keys, 829 with 176, which spill."""


def obstacles(problem: AttentionProblem, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why this attention needs another kernel, whatever the configuration."""
    if sm.number != 90:
        yield f"sm_{sm.number} has no wgmma"
    names = {"q": "queries", "k": "keys", "v": "values"}
    yield from layout_obstacles(((names[key[0]], *matrix) for key, matrix in problem.matrices.items()), problem.batch)


def layout_obstacles(matrices: Iterable[tuple[str, Matrix, int]], batch: Shape) -> Iterator[str]:
    """A sentence for each matrix that TMA cannot bring: its name, itself, the dimension along which rows lie."""
    for name, matrix, dim in matrices:
        if 0 in matrix.shape[-2:]:
            yield f"there are no {name}"
        others = [s for d, (n, s) in enumerate(_sized(matrix), -len(matrix.shape)) if d != dim and n != 1]
        if any(step % TMA_ELEMENTS for step in (matrix.shape[dim], *others)) or matrix.strides[dim] != 1:
            yield f"rows of the {name} do not begin at 16 bytes"
        if sum(n != 1 and s != 0 for n, s in _sized(matrix)[:-2]) > MOST_TMA_BATCH_DIMS:
            yield f"the {name} have more batch dimensions than a tensor map"
    if len(batch) > MOST_TMA_BATCH_DIMS:
        yield f"{len(batch)} batch dimensions: a tensor map has room for {MOST_TMA_BATCH_DIMS}"


def _sized(matrix: Matrix) -> list[tuple[int, int]]:
    return list(zip(matrix.shape, matrix.strides, strict=True))


def padded(width: int) -> int:
    """A head's width in whole steps of the matrix instruction."""
    return -(-width // 16) * 16


def shared_bytes(problem: AttentionProblem, c: HopperAttentionConfiguration) -> int:
    """The tiles of queries, the rings of keys and of values, barriers and what the architecture keeps."""
    return _bytes_beside(problem, c) + query_stages(problem, c) * _query_bytes(problem, c)


def query_stages(problem: AttentionProblem, c: HopperAttentionConfiguration) -> int:
    """Tiles of queries in shared memory: two where there is room, as the next is loaded while this one leaves."""
    room = parse_arch("sm_90a").sm.smem_per_block - _bytes_beside(problem, c)
    return 2 if room >= 2 * _query_bytes(problem, c) else 1


def _query_bytes(problem: AttentionProblem, c: HopperAttentionConfiguration) -> int:
    return 2 * c.queries * padded(problem.width)


def _bytes_beside(problem: AttentionProblem, c: HopperAttentionConfiguration) -> int:
    rings = 2 * c.stages * c.keys * (padded(problem.width) + padded(problem.value_width))
    tiles = c.stages * c.keys * c.queries * sum(ITEM_BYTES[operand.dtype] for operand in tiled_operands(problem))
    return rings + tiles + BARRIER_BYTES + RESERVED_SMEM_PER_BLOCK


def refusals(problem: AttentionProblem, c: HopperAttentionConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template would not run so."""
    registers = padded(problem.value_width) // 2 + c.keys // 2 + c.keys // 4 + OTHER_REGISTERS
    registers += PART_REGISTERS if problem.more else 0
    if registers > REGISTERS[c.warpgroups]:
        yield f"{registers} registers a thread: {c.warpgroups} warpgroups have {REGISTERS[c.warpgroups]}"
    if (needed := shared_bytes(problem, c)) > sm.smem_per_block:
        yield f"{needed} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"


def reads_in_parts(problem: AttentionProblem) -> bool:
    """Whether several blocks read the keys of one tile, as there are few tiles and many keys that a query sees."""
    tiles = math.prod(problem.batch) * math.ceil(problem.queries / MOST_QUERIES)
    seen = problem.keys * seen_share(problem.band, problem.queries, problem.keys)
    return problem.output.is_identity and 2 * tiles <= SM_COUNT and seen >= FEWEST_KEYS


def tiled_operands(problem: AttentionProblem) -> list[Operand]:
    """What scores read an element of for each query and key, as a mask in memory, in tiles that TMA brings with keys.

    Read where it lies, a mask of 16 bits costs an H200 three times as long as all else (64 heads of 64, 4096 queries
    and keys): a warp's scores lie in eight rows, and each load of two bytes a lane reads eight sectors.
    """
    return [operand for operand in problem.score.operands if _is_tiled(operand, problem.k.shape[-1])]


def _is_tiled(operand: Operand, first_keys: int) -> bool:
    """A box of TMA begins at 16 bytes: where keys have two parts, so does what belongs to the second."""
    *steps, last = operand.strides
    size = ITEM_BYTES[operand.dtype]
    aligned = all(step * size % TMA_BYTES == 0 for step in (*steps, first_keys))
    return operand.varies[-2:] == (True, True) and last == 1 and size <= MOST_TILED_BYTES and aligned


def stores_by_tma(problem: AttentionProblem) -> bool:
    """Whether the result leaves through the queries' shared memory, as it is."""
    if reads_in_parts(problem):
        return False
    output = problem.output.outputs[0]
    return problem.output.is_identity and output.dtype == problem.dtype and problem.width == problem.value_width

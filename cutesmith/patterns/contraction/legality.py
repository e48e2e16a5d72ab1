"""Whether a configuration can be a kernel: one place for every condition that the template asks for."""

from __future__ import annotations

from collections.abc import Iterator

from cutesmith.devices import SmVersion
from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.graph.dtypes import ITEM_BYTES

PAD_BYTES = 16
"""After each line of a tile in shared memory; the template's PAD."""

FEWEST_COLUMNS = 32
"""Of a tile with whole rows: 8 lanes of a warp at least share each, so that all lanes of one have as many rows."""

ACCUMULATOR_BYTES = {"Float32": 4, "Int32": 4, "Float64": 8, "Int64": 8}
REGISTERS_FOR_SUMS = 128
"""A thread has 255 registers; operands, addresses and the epilogue need the rest."""


def threads(configuration: ContractionConfiguration) -> int:
    """A block's."""
    return 32 * configuration.warps_m * configuration.warps_n


def shared_bytes(problem: ContractionProblem, c: ContractionConfiguration) -> int:
    """What a block's shared memory holds: the operands' stages, or the sums after them."""
    factors = [(problem.a, c.tile_m, -1), *((right, c.tile_n, -2) for right in problem.right)]
    stages = sum(
        c.stages * _tile_bytes(tile, c.tile_k, matrix.contiguous in (k_dim, None), ITEM_BYTES[matrix.dtype])
        for matrix, tile, k_dim in factors
    )
    sums = _tile_bytes(c.tile_m, c.tile_n, True, ACCUMULATOR_BYTES[problem.accumulator])
    return max(stages, sums * len(problem.right))


def _tile_bytes(lines: int, length: int, along_length: bool, item_bytes: int) -> int:
    lines, length = (lines, length) if along_length else (length, lines)
    return lines * (length * item_bytes + PAD_BYTES)


def refusals(problem: ContractionProblem, c: ContractionConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template cannot be rendered so, or would not run."""
    kind, count = arithmetic_of(problem), threads(c)
    wide_m, wide_n, step = {
        Arithmetic.HALF: (16 * c.warps_m, 16 * c.warps_n, 16),
        Arithmetic.TF32: (16 * c.warps_m, 8 * c.warps_n, 8),
        Arithmetic.TF32_THRICE: (16 * c.warps_m, 8 * c.warps_n, 8),
        Arithmetic.FMA: (8 * c.warps_m, 4 * c.warps_n, 1),
    }[kind]
    for name, tile, unit in (("m", c.tile_m, wide_m), ("n", c.tile_n, wide_n), ("k", c.tile_k, step)):
        if tile % unit:
            yield f"the tile's {name} of {tile} is not a multiple of {unit}"
    for name, tile in (("m", c.tile_m), ("n", c.tile_n), ("k", c.tile_k)):
        if tile & (tile - 1) or tile > count:
            yield f"{count} threads do not cover the tile's {name} of {tile}, one element each"
    if c.dual != (problem.second is not None):
        yield "a tile has the sums of each product"
    if problem.rounds and not max(problem.n, FEWEST_COLUMNS) <= c.tile_n:
        yield f"a tile of {c.tile_n} columns does not have whole rows of {problem.n} in lanes of one warp"
    if count > 1024:
        yield f"{count} threads: a block has at most 1024"
    sums = c.tile_m * c.tile_n // count * (ACCUMULATOR_BYTES[problem.accumulator] // 4)
    sums *= 2 if c.dual or kind is Arithmetic.TF32_THRICE else 1
    if sums > REGISTERS_FOR_SUMS:
        yield f"{sums} registers a thread for sums: more than {REGISTERS_FOR_SUMS} spill"
    if (needed := shared_bytes(problem, c)) > sm.smem_per_block:
        yield f"{needed} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"

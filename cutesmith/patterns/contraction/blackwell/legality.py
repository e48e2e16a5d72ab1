"""Whether sm_100a's kernel can serve a product at all, and whether one of its configurations can be a kernel."""

from __future__ import annotations

from collections.abc import Iterator

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, SmVersion
from cutesmith.patterns.contraction.analysis import ContractionProblem, Matrix, Seen
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.epilogue import Output
from cutesmith.patterns.contraction.im2col import can_join, copied_of_windows, obstacles_of_windows
from cutesmith.patterns.contraction.tma import (
    MOST_TMA_BATCH_DIMS,
    copied_matrices,
    lie_along_k,
    obstacles_of_second,
    outputs_apart,
)
from cutesmith.patterns.graph.dtypes import ITEM_BYTES

ROWS = 128
"""Of tensor memory: one for each thread of the warps that write out."""

TENSOR_COLUMNS = 512
"""Of tensor memory (PTX ISA, "Tensor Memory")."""

BARRIER_BYTES = 512
"""For the barriers of the rings, the address of tensor memory, and what aligning the tiles to 1024 bytes skips."""

PRODUCT_BYTES = 32
"""Of k that one tcgen05.mma multiplies."""

STRIPS = (64, 32, 16)
"""Columns of a tile that can leave at once."""

REGISTERS_FOR_STRIP = 200
"""Of the 255 of a thread, for the sums, operands and results of a strip of columns."""


def obstacles(problem: ContractionProblem, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why this product needs another kernel, whatever the configuration."""
    if "tcgen05.mma" not in sm.tensor_cores:
        yield f"sm_{sm.number} has no tcgen05"
    arithmetic = arithmetic_of(problem)
    if arithmetic is Arithmetic.FMA:
        yield f"the kernel multiplies float16, bfloat16, float32 and float8, not {problem.a.dtype}"
    if problem.rounds:
        yield "the other forms reduce rows"
    if any(problem.scales):
        yield "factors have scales of blocks"
    if isinstance(problem.b, Seen):
        yield from obstacles_of_windows(problem, problem.b)
        if len(problem.batch) > 1:
            yield "windows are those of several groups"
        if arithmetic is Arithmetic.TF32_THRICE:
            yield "a tensor map of windows has no dimension left for parts"
    yield from obstacles_of_second(problem)
    if problem.indices:
        yield "TMA reads the matrices of a batch in their order"
    if problem.k == 0:
        yield "there is nothing to sum up"
    most = MOST_TMA_BATCH_DIMS - (1 if arithmetic is Arithmetic.TF32_THRICE else 0)  # parts take one
    if len(problem.batch) > most:
        yield f"{len(problem.batch)} batch dimensions: a tensor map has room for {most}"
    for output in problem.epilogue.outputs:
        item = ITEM_BYTES[output.dtype]
        if item > 4:
            yield f"{output.name} has elements of {item} bytes"


def copied_factors(problem: ContractionProblem) -> list[Matrix | Seen]:
    """The factors that TMA cannot read: a launch copies them before the product, in lines that start where TMA can."""
    if isinstance(problem.b, Seen):
        return copied_of_windows(problem, problem.b)
    return copied_matrices(problem)


def strip_registers(problem: ContractionProblem, columns: int) -> int:
    """Of a thread, for its row of a strip: sums, float32 results, and operands, of which rows' are one number."""
    operands = sum(ITEM_BYTES[o.dtype] for o in problem.epilogue.operands if any(o.varies[-2:]))
    return columns * (4 * len(problem.right) + 4 * len(problem.epilogue.outputs) + operands) // 4


def _in_whole_lines(problem: ContractionProblem, c: BlackwellConfiguration) -> Iterator[bool]:
    """Of each factor whether it lies along k, or a block's part of a tile is a multiple of 128 bytes along m or n."""
    along_k = lie_along_k(problem)[:: -1 if c.swapped else 1]
    for is_along_k, lines in zip(along_k, (c.rows, c.tile_n // (2 if c.pair else 1)), strict=True):
        yield is_along_k or lines * ITEM_BYTES[problem.a.dtype] % 128 == 0


def moved_outputs(problem: ContractionProblem, c: BlackwellConfiguration) -> list[Output]:
    """The outputs whose rows do not start where TMA can write: a launch moves rows together after the product."""
    return list(problem.epilogue.outputs) if c.joined else outputs_apart(problem)


def needs_launches(problem: ContractionProblem, c: BlackwellConfiguration) -> bool:
    """Whether others run beside the kernel: factors are split or copied first, or results moved together after it."""
    return c.ahead or bool(copied_factors(problem) or moved_outputs(problem, c))


def stage_bytes(problem: ContractionProblem, c: BlackwellConfiguration) -> int:
    """What one stage of the ring holds of a block's: of a pair, each block loads half of both operands."""
    return c.lines // (2 if c.pair else 1) * c.tile_k * c.parts * factor_bytes(problem, c)


def factor_bytes(problem: ContractionProblem, c: BlackwellConfiguration) -> int:
    """Of what tcgen05 multiplies, as TMA loads it."""
    return ITEM_BYTES["bfloat16" if c.ahead else problem.a.dtype]


def other_bytes(problem: ContractionProblem, c: BlackwellConfiguration) -> int:
    """Shared memory beside the ring: the strips that outputs leave from."""
    leaving = c.buffers * ROWS * c.columns * sum(ITEM_BYTES[output.dtype] for output in problem.epilogue.outputs)
    return leaving + BARRIER_BYTES + RESERVED_SMEM_PER_BLOCK


def shared_bytes(problem: ContractionProblem, c: BlackwellConfiguration) -> int:
    """What a block's shared memory holds."""
    return c.stages * stage_bytes(problem, c) + other_bytes(problem, c)


def refusals(problem: ContractionProblem, c: BlackwellConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template cannot be rendered so, or would not run."""
    if isinstance(problem.b, Seen) and (not c.swapped or c.pair):
        yield "positions of windows are rows of tiles of one block"
    if isinstance(problem.b, Seen) and c.tile_k * ITEM_BYTES[problem.a.dtype] > 128:
        yield f"{c.tile_k} channels are more than a line of 128 bytes"
    if c.joined and not can_join(problem):
        yield "positions of several images cannot follow each other"
    if c.dual != (problem.second is not None):
        yield "a tile has the sums of each product"
    if c.rows != ROWS:
        yield f"{c.rows} rows a block: tensor memory has {ROWS}"
    unit = 32 if c.pair else 16
    if c.tile_n % unit or not unit <= c.tile_n <= 256 or c.tile_n % c.columns:
        yield f"tcgen05.mma has no {c.tile_n} columns, or they do not leave {c.columns} at a time"
    if c.columns not in STRIPS:
        yield f"{c.columns} columns do not leave at once"
    if c.ahead != (arithmetic_of(problem) is Arithmetic.TF32_THRICE):
        yield "numbers of float32 are split into parts where they may not be rounded to tf32, and no others"
    if (registers := strip_registers(problem, c.columns) + c.tile_n * c.ahead) > REGISTERS_FOR_STRIP:
        yield f"{registers} registers a thread for {c.columns} columns and sums of k-tiles spill"
    if c.tile_k % (depth := PRODUCT_BYTES // factor_bytes(problem, c)):
        yield f"{c.tile_k} of k are not a multiple of {depth}"
    own = c.tile_n // (2 if c.pair else 1)
    if arithmetic_of(problem) is Arithmetic.TF32 and own > 16 and own % 32:
        yield f"the DSL 4.8.1 aborts at {own} lines of float32 a block: that is not a multiple of 32"
    if arithmetic_of(problem) is Arithmetic.TF32 and not all(_in_whole_lines(problem, c)):
        yield "tcgen05 reads tf32 along m and n in lines of 128 bytes"
    if c.sums_columns > TENSOR_COLUMNS:
        yield f"{c.sums_columns} columns of sums: tensor memory has {TENSOR_COLUMNS}"
    if c.stages < 2:
        yield "loads need a second stage"
    if (needed := shared_bytes(problem, c)) > sm.smem_per_block:
        yield f"{needed} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"

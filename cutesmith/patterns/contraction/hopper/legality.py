"""Whether sm_90a's kernel can serve a product at all, and whether one of its configurations can be a kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, SmVersion
from cutesmith.patterns.contraction.analysis import ContractionProblem, Matrix, Seen
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.epilogue import Output
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.scales import tile_scales
from cutesmith.patterns.contraction.im2col import can_join, copied_of_windows, obstacles_of_windows
from cutesmith.patterns.contraction.tma import (
    MOST_TMA_BATCH_DIMS,
    copied_matrices,
    lie_along_k,
    obstacles_of_second,
    outputs_apart,
    tma_reaches,
    varies_over,
)
from cutesmith.patterns.graph.attributes import ShortSums
from cutesmith.patterns.graph.dtypes import ITEM_BYTES

SPLIT_STAGES = 2
"""Tiles of the right factor in parts of bfloat16."""

MOST_UNROLLED = 63
"""Turns of a loop; the DSL warns of 64."""

MOST_SUMS_AGAIN = 64
"""Of a transposed convolution, whose code is that long for each. Two of 192 took 2.8 and 3.8 times as long as predicted
on an H100, five of 32 took 1.2 to 1.4 times as long."""

MOST_BESIDE_OPERANDS = 176
"""Registers of the 240 of a thread for sums of two products and operands of a strip. With 128 and 64, as angles of 32
columns take, 430 bytes spill; with 128 and 32 none do (as compiled, DSL 4.8.1)."""

INSTRUCTION_BYTES = 16
LONGEST_CODE = 96e3
"""Bytes of the function of all sums of a thread. 101 KB ran as predicted on an H100 (KernelBench 2/4); 135 KB, in a
kernel of 150, took 2.1 times as long, as if each instruction came from L2 (2/52; not profiled)."""

BARRIER_BYTES = 512
"""For the barriers of the ring and for what aligning the tiles to 1024 bytes skips at most beside them."""


def obstacles(problem: ContractionProblem, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why this product needs another kernel, whatever the configuration."""
    if sm.number != 90:
        yield f"sm_{sm.number} has no wgmma"
    arithmetic = arithmetic_of(problem)
    if arithmetic is Arithmetic.FMA:
        yield f"the kernel multiplies float16, bfloat16, float32 and float8, not {problem.a.dtype}"
    reached = all(isinstance(side, Matrix) and tma_reaches(side) for side in (problem.a, problem.b))
    if arithmetic is Arithmetic.FLOAT8 and not (reached and lie_along_k(problem) == (True, True)):
        yield "wgmma reads float8 along k, and TMA lines that begin at 16 bytes"
    if problem.scaled_k % 32:
        yield f"scales change after {problem.scaled_k} of k: wgmma sums up 32 products of float8"
    if problem.ends is not None and arithmetic is not Arithmetic.HALF:
        yield f"rows of groups are multiplied as numbers of 16 bits, not as {problem.a.dtype}"
    if problem.k == 0:
        yield "there is nothing to sum up"
    if isinstance(problem.b, Seen):
        yield from obstacles_of_windows(problem, problem.b)
    if problem.order and not isinstance(problem.b, Seen):
        yield "only products of windows are put in order"
    if problem.order and math.prod(problem.graph.outputs[0].shape[len(problem.batch) :]) >= 2**31:
        yield "positions of an image have numbers of more than 31 bits"
    yield from obstacles_of_second(problem)
    if len(problem.batch) > MOST_TMA_BATCH_DIMS:
        yield f"{len(problem.batch)} batch dimensions: a tensor map has room for {MOST_TMA_BATCH_DIMS}"
    for output in problem.epilogue.outputs:
        item = ITEM_BYTES[output.dtype]
        if item > 4:
            yield f"{output.name} has elements of {item} bytes"


def is_tf32(problem: ContractionProblem, c: HopperConfiguration) -> bool:
    """Whether wgmma multiplies numbers of float32 that are rounded to tf32."""
    return problem.a.dtype == "float32" and c.parts == 1


def copied_factors(problem: ContractionProblem, c: HopperConfiguration) -> list[Matrix | Seen]:
    """The factors that TMA or wgmma cannot read: a launch copies them first, in lines that start where TMA can."""
    if isinstance(problem.b, Seen):
        return copied_of_windows(problem, problem.b)
    return copied_matrices(problem, turned_factors(problem, c))


def turned_factors(problem: ContractionProblem, c: HopperConfiguration) -> list[Matrix]:
    """The matrices whose copy has lines along another dimension: wgmma reads tf32 of shared memory along k only.

    Weights of windows do not count: their copy has its channels side by side in any case.
    """
    if isinstance(problem.b, Seen):
        return []
    along_k = zip((problem.a, problem.b), k_major(problem, c), (-1, -2), strict=True)
    return [side for side, is_major, k in along_k if isinstance(side, Matrix) and is_major and side.contiguous != k]


def moved_outputs(problem: ContractionProblem, c: HopperConfiguration) -> list[Output]:
    """The outputs whose rows do not start where TMA can write: a launch moves rows together after the product."""
    if problem.order:  # no output leaves by TMA
        return []
    return list(problem.epilogue.outputs) if c.joined else outputs_apart(problem)


def k_major(problem: ContractionProblem, c: HopperConfiguration) -> tuple[bool, bool]:
    """Whether A and B are contiguous along k as the kernel reads them; else they are along m and n."""
    a, b = lie_along_k(problem)
    return (a or (is_tf32(problem, c) and c.swapped), b or (is_tf32(problem, c) and not c.swapped))


def sums_again(problem: ContractionProblem, c: HopperConfiguration) -> bool:
    """Whether a sum that is not finite is made again from the factors themselves.

    Zeros around an image may be multiplied, as in any convolution. To sum up again in registers is 540 KB of code for
    tiles of 192 x 128: kernels of tf32 took 2.8 and 3.8 times as long as predicted (KernelBench 1/69, 1/71).
    """
    transposed = problem.windows is not None and problem.windows.is_transposed
    scaled = any(scales is not None for scales in problem.scales)
    return c.parts > 1 or scaled or (transposed and not is_tf32(problem, c))


def in_a_loop(problem: ContractionProblem, c: HopperConfiguration) -> bool:
    """Whether the function of the sums is a loop over a thread's rows, since the code of all does not fit the cache.

    Registers have no index that is known at run time: sums go through the buffer that they leave from. So the result
    is float32, and operands are the same in all rows.
    """
    if problem.rounds:
        return False
    (output, *others), epilogue = problem.epilogue.outputs, problem.epilogue
    plain = output.dtype == "float32" and output.computed == "Float32" and not others and not epilogue.coordinates
    by_columns = all(varies_over(operand, swapped=c.swapped) == "n" for operand in epilogue.operands)
    if not (plain and by_columns) or c.split > 1 or c.dual or problem.order or sums_again(problem, c):
        return False
    return INSTRUCTION_BYTES * c.sums_per_thread * problem.epilogue_instructions > LONGEST_CODE


def operand_registers(problem: ContractionProblem, c: HopperConfiguration) -> int:
    """Of a thread, for operands of a strip of columns that change with both coordinates."""
    both = [o for o in problem.epilogue.operands if varies_over(o, swapped=c.swapped) == "mn"]
    return c.rows * c.columns // 128 * sum(ITEM_BYTES[operand.dtype] for operand in both) // 4


def from_registers(problem: ContractionProblem, c: HopperConfiguration) -> bool:
    """Whether wgmma of tf32 takes the left factor of the tiles from registers: it lies along m in shared memory."""
    return is_tf32(problem, c) and not k_major(problem, c)[c.swapped]


def stage_bytes(problem: ContractionProblem, c: HopperConfiguration) -> int:
    """What one stage of the ring holds."""
    return c.lines * c.tile_k * item_bytes(problem, c)


def item_bytes(problem: ContractionProblem, c: HopperConfiguration) -> int:
    """Of a factor's number, as TMA loads it."""
    return (c.parts if c.ahead else 1) * factor_bytes(problem, c)


def factor_bytes(problem: ContractionProblem, c: HopperConfiguration) -> int:
    """Of what wgmma multiplies, as TMA loads it."""
    return ITEM_BYTES["bfloat16" if c.ahead else problem.a.dtype]


def other_bytes(problem: ContractionProblem, c: HopperConfiguration) -> int:
    """Shared memory beside the ring: where outputs leave from, and sums of a part of k."""
    leaving = c.warpgroups * c.rows * c.columns * sum(ITEM_BYTES[output.dtype] for output in problem.epilogue.outputs)
    own_strips = -(-(c.tile_n // c.columns) // c.split)
    sums = 4 * c.warpgroups * c.rows * c.columns * c.split * own_strips if c.split > 1 else 0
    split = SPLIT_STAGES * c.parts * c.tile_n * c.tile_k * ITEM_BYTES["bfloat16"] if c.splits else 0
    return leaving + sums + split + BARRIER_BYTES + RESERVED_SMEM_PER_BLOCK


def shared_bytes(problem: ContractionProblem, c: HopperConfiguration) -> int:
    """What a block's shared memory holds."""
    return c.stages * stage_bytes(problem, c) + other_bytes(problem, c)


def _refusals_of_windows(problem: ContractionProblem, c: HopperConfiguration) -> Iterator[str]:
    """Of the images of convolutions, and of the order of the phases of transposed ones."""
    if isinstance(problem.b, Seen) and (not c.swapped or c.cluster_n > 1):
        yield "positions of windows are rows of tiles, which no other block shares"
    if problem.order and (c.joined or c.split > 1 or c.columns % problem.order.phases):
        yield "phases are put in order by images, each phase of an output in one strip"
    if problem.order and c.columns // problem.order.strides[-1] > MOST_UNROLLED:
        yield f"a loop that stores {c.columns} columns is too long"
    if c.joined and not can_join(problem):
        yield "positions of several images cannot follow each other"


def refusals(problem: ContractionProblem, c: HopperConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template cannot be rendered so, or would not run."""
    yield from _refusals_of_windows(problem, c)
    line = 128 // factor_bytes(problem, c)
    a_contiguous_k, b_contiguous_k = k_major(problem, c)[:: -1 if c.swapped else 1]
    if c.dual != (problem.second is not None):
        yield "a tile has the sums of each product"
    if problem.rounds and (c.swapped or c.tile_n < problem.n or c.split > 1 or c.cluster_n > 1):
        yield f"a row of {problem.n} columns does not lie in four lanes of one warp, of one block"
    if c.dual and (c.split > 1 or c.parts > 1):
        yield "blocks that divide k, and parts, have sums of one product"
    if c.dual and not c.swapped and (c.tile_k > line if b_contiguous_k else c.tile_n % line):
        yield "one wgmma multiplies with two right tiles where these are one in shared memory"
    if is_tf32(problem, c) and not problem.tf32:
        yield "PyTorch's flags do not allow numbers rounded to tf32"
    if c.tile_m % (64 * c.warpgroups if not c.pingpong else 64):
        yield f"{c.tile_m} rows are not a multiple of 64 for each warpgroup"
    if c.columns % 16 or c.tile_n > 256 or c.tile_n % c.columns:
        yield f"wgmma has no {c.tile_n} columns, or they do not leave {c.columns} at a time"
    if c.pingpong and c.warpgroups != 2:
        yield "two warpgroups take turns"
    if c.cluster_m > 1 and c.cluster_n > 1:
        yield "a cluster shares one operand"
    if c.split > 1 and problem.ends is not None:
        yield "how many blocks divide k is known before the ends of groups are"
    if c.split > 1 and (c.pingpong or c.cluster_m * c.cluster_n > 1):
        yield "blocks that divide k share nothing else"
    sides = (a_contiguous_k, c.tile_m, c.cluster_n), (b_contiguous_k, c.tile_n, c.cluster_m)
    for contiguous_k, lines, parts in sides:
        if lines % (parts * (8 if contiguous_k else line)) and (parts > 1 or not contiguous_k):
            yield f"{lines} lines of an operand cannot be loaded by {parts} blocks"
    if factor_bytes(problem, c) == 4 and c.tile_n > 16 and c.tile_n % 32:
        yield f"the DSL 4.8.1 aborts at tiles of {c.tile_n} lines of float32: that is not a multiple of 32"
    if c.swapped and c.rows % min(line, 64):
        yield f"{c.rows} rows of a transposed result are not whole lines"
    if c.sums_apart and c.pingpong:
        yield "where sums of a k-tile are apart, the warpgroups share a tile"
    is_float8 = arithmetic_of(problem) is Arithmetic.FLOAT8
    if c.promoted != is_float8 and not (is_float8 and problem.short_sums is ShortSums.WHOLE):
        yield "sums of float8 are short, and of no other type"
    if c.ahead and (isinstance(problem.b, Seen) or len(problem.batch) >= MOST_TMA_BATCH_DIMS):
        yield "a tensor map has no dimension left for parts"
    if problem.scaled_k % c.tile_k:
        yield f"scales change within {c.tile_k} of k"
    registers = c.sums_per_thread + sum(scales.count for scales in tile_scales(problem, c))
    registers += c.rows * c.tile_k // 128 if from_registers(problem, c) else 0
    if registers > (128 if c.splits else 208):
        yield f"{registers} registers a thread for sums, their scales and factors spill"
    operands = operand_registers(problem, c) if c.dual else 0
    if operands and c.sums_per_thread + operands > MOST_BESIDE_OPERANDS:
        yield f"{c.sums_per_thread} registers a thread for sums and {operands} for operands of a strip spill"
    again = problem.windows is not None and problem.windows.is_transposed and sums_again(problem, c)
    if again and c.sums_per_thread > MOST_SUMS_AGAIN:
        yield f"{c.sums_per_thread} sums a thread, with code to make each again: more than {MOST_SUMS_AGAIN} are slow"
    if c.stages < 2:
        yield "loads need a second stage"
    if (needed := shared_bytes(problem, c)) > sm.smem_per_block:
        yield f"{needed} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"

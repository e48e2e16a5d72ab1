"""How long a configuration of sm_90a's kernel takes, by a model of its parts; sentences that say so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, parse_arch
from cutesmith.patterns.contraction.analysis import ContractionProblem, Matrix, Right, Seen
from cutesmith.patterns.contraction.arithmetic import Arithmetic, arithmetic_of
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import (
    INSTRUCTION_BYTES,
    LONGEST_CODE,
    copied_factors,
    factor_bytes,
    from_registers,
    in_a_loop,
    is_tf32,
    item_bytes,
    moved_outputs,
    shared_bytes,
    turned_factors,
)
from cutesmith.patterns.contraction.tma import Prediction, varies_over
from cutesmith.patterns.graph.dtypes import ITEM_BYTES

CLUSTERS_AT_ONCE = {1: 132, 2: 66, 4: 30, 8: 13}
"""How many clusters of so many blocks run at once on an H200 of 132 multiprocessors."""

# Fitted to the medians of 138 sizes and runs with up to 39 configurations each, on an H200 and on H100s whose memory is
# slower; `evals/studies/check_predictions.py` says how near it comes to them.
LAUNCH_SECONDS = 8.1e-6
"""As a pair of events measures it."""
CLOCK = 1.87e9
LOADED_BYTES = 74.0
"""That a multiprocessor loads from L2 in a cycle."""
LATENCY_CYCLES = 2200.0
"""From a load to its arrival, while all multiprocessors load: what stages in flight hide."""
OUTSIDE_CYCLES = 4.15
"""More for a line of a tile that lies outside of its matrix, which TMA fills with zeros."""
WINDOW_CYCLES = 1.12
"""More for a position of windows in a k-tile: TMA reads an image pixel by pixel."""
WINDOW_CLUSTER_CYCLES = 100.0
"""More for the loads of a k-tile of windows where blocks share the weights: 3 x 3 convolutions of 64 outputs take 1.04
to 1.17 times as long on an H200 as without a cluster, those of 128 x 192 tiles as long."""
STEP_CYCLES = 55.0
"""Of a k-tile for its barriers, beside its products."""
CLUSTER_CYCLES = {"m": 46.0, "n": 77.0}
"""More for a k-tile that blocks side by side in m or in n load together; of float8 those in m are 1 % faster."""
PARTS_CYCLES = 960.0
"""Of a k-tile of float32, beside its products, where the kernel splits."""
TILE_CYCLES = 1900.0
"""Before the first products of a tile, and after its last."""
ROUND_CYCLES = 150.0
"""Of each strip of columns that leaves, for its barriers, where warpgroups share a tile."""
STORED_BYTES = 12.9
"""That a multiprocessor stores in a cycle while all do; the last strip of a tile leaves beside the next tile."""
INSTRUCTION_CYCLES = 3.0
"""Of an instruction of an epilogue, where each scheduler has one or two warps to hide its latency."""
MISSED_CYCLES = 12.0
"""Of one that comes from L2: of a function of 135 KB (KernelBench 2/52), and of 304 KB (2/4, tiles of 192 x 128)."""
CODE_BYTES = 128e3
"""Of the function of all sums, from which on each of its instructions comes from L2."""
LOOP_INSTRUCTIONS = 4
"""More for each sum where the function is a loop: the sum goes to shared memory and back, and has a place there."""
ALONE_SHARE = 0.3
"""Of the epilogue where warpgroups take turns and a block has a single tile: no products run beside it. Bias and GELU
of 256 x 8192 x 2048 took 22.7 us in turns, 21.0 shared."""
SUM_INSTRUCTIONS = 10
"""Of each sum beside the function's own: it is converted, and stored to shared memory. Where warpgroups share a tile,
ROUND_CYCLES has as many."""
ORDER_INSTRUCTIONS = 7
"""More for each sum that is put in order: it is read from shared memory and stored, if it has a position. As compiled
for 2 x 2 phases; not measured."""
SPLIT_CYCLES = 1000.0
"""For each doubling of the blocks that add up a tile."""
BANDWIDTH = 4.33e12
LINE_SHARE = 0.12
"""More time for bytes of device memory that are read in lines of 128; half of that in lines of 256."""
MOST_FLOPS = 1360e12
MOST_FLOPS_OF_FLOAT8 = 2390e12
MOST_FLOPS_OF_TF32 = MOST_FLOPS / 2
"""An estimate, below which two products on an H100 stay: 408 and 419e12."""
DUAL_CYCLES = 0.95
"""Of the cycles of a tile of two products, as of eight sizes on an H200."""
DUAL_POWER, LONG_FLOPS = {False: 0.10, True: 0.02}, 4e11
"""More than that of one product, by whether warpgroups take turns, of a launch that lasts long: 128 x 128 shared took
1349 us at 4096 x 14336 x 4096 where 128 x 80 in turns took 1257, and 30.4 at 256 x 8192 x 2048 where that took 34.6."""
LATE_CYCLES = {True: 25.0, False: 64.0}
"""Of each sum and each operand of a tile of two products, by whether warpgroups take turns: no register is left to load
them early. Rotated heads of 8192 x 4096 x 4096 took 403 us on an H200 where 356 were predicted without."""
COPIED_AT_ONCE = 256
"""Elements of a line that a warp copies."""
COPY_SECONDS = 3e-6
"""Of a launch that copies a factor, beside its bytes."""
STEP_SHARPNESS = 8.0
"""Of the maximum of what a k-tile waits for: the exponent of a norm."""
SHARPNESS = 2.64
"""Of that of multiprocessors, memory and power."""


def blocks_at_once(problem: ContractionProblem, c: Tiles) -> int:
    """How many blocks share a multiprocessor of Hopper."""
    sm = parse_arch("sm_90a").sm
    memory = sm.smem_per_sm // (shared_bytes(problem, c) + RESERVED_SMEM_PER_BLOCK)
    registers = sm.registers_per_sm // (c.threads * 128)
    return max(1, min(memory, registers if c.sums_per_thread <= 64 else 1, 2))


def extent(problem: ContractionProblem, c: Tiles) -> tuple[int, int]:
    """Rows and columns of a product as tiles cut it; those of all images where they follow each other."""
    images = problem.batches if c.joined else 1
    return (images * problem.n, problem.m) if c.swapped else (problem.m, problem.n)


def cluster_tiles(problem: ContractionProblem, c: Tiles) -> tuple[int, int]:
    """How many tiles of clusters lie down and across."""
    (rows, columns), down, across = extent(problem, c), c.tile_m * c.cluster_m, c.tile_n * c.cluster_n
    if problem.ends is not None and c.swapped:
        return math.ceil(rows / down), problem.tiles_down(across)
    if problem.ends is not None:
        return problem.tiles_down(down), math.ceil(columns / across)
    return math.ceil(rows / down), math.ceil(columns / across)


def read_once(problem: ContractionProblem, c: Tiles) -> str:
    """The factors, A and B, of which no line is read again later: all tiles that need it run at once."""
    if problem.windows is not None or problem.indices:
        return ""
    down, across = cluster_tiles(problem, c)
    own = [_has_own(problem, side) for side in (problem.a, problem.b)][:: -1 if c.swapped else 1]
    return ("A" if across <= 1 and own[0] else "") + ("B" if down <= c.group and own[1] else "")


def shares_left(problem: ContractionProblem, c: Tiles) -> bool:
    """Whether all products have one left factor: their tiles lie side by side, as those of one result."""
    is_plain = isinstance(problem.b, Matrix) and not (c.swapped or c.joined or problem.indices)
    return is_plain and problem.batches > 1 and not any(problem.a.strides[:-2])


def _has_own(problem: ContractionProblem, side: Right) -> bool:
    """Whether each product of a batch has a factor of its own."""
    leading = zip(problem.batch, side.shape[:-2], side.strides[:-2], strict=True)
    return all(count == 1 or (size == count and step) for count, size, step in leading)


def predict(problem: ContractionProblem, c: Tiles) -> Prediction:
    """What a configuration takes: waves of tiles, as long as their wgmma or their loads; or all bytes; or all flops."""
    rows, columns = extent(problem, c)
    is_float8, tf32 = arithmetic_of(problem) is Arithmetic.FLOAT8, is_tf32(problem, c)
    share, at_once = c.cluster_m * c.cluster_n, blocks_at_once(problem, c)
    tiles = math.prod(cluster_tiles(problem, c)) * share * (1 if c.joined else problem.batches)
    resident = CLUSTERS_AT_ONCE[share * c.split] * share * c.split * at_once
    waves = max(1, math.ceil(tiles * c.split / resident))  # a result without elements has no tile
    # A wgmma of 64 x n x 32 bytes takes n / 2 cycles, or as long as its operands take to read, 128 bytes a cycle.
    depth = 32 if is_float8 else 8 if tf32 else 16
    # A's registers are loaded from shared memory with two accesses a bank, before the products or beside those of the
    # other half of the tile.
    registers = from_registers(problem, c)
    first = 32 if registers and c.pingpong else 0
    across, down = (1, len(problem.right)) if c.swapped else (len(problem.right), 1)
    multiply = first + max(across * c.tile_n / 2, (32 - first if registers else 16) + across * c.tile_n / 4)
    multiply *= down * c.tile_m / 64 * c.tile_k / depth * len(c.products)
    load = _load_cycles(problem, c, rows, columns)
    waits = (multiply * at_once + STEP_CYCLES, load * at_once, LATENCY_CYCLES / max(1, c.stages - 1))
    step = _norm(waits, STEP_SHARPNESS) + (PARTS_CYCLES if c.splits else 0.0)
    if c.cluster_n > 1 or (c.cluster_m > 1 and not is_float8):
        step += CLUSTER_CYCLES["n" if c.cluster_n > 1 else "m"]
    sums = _steps(problem, c) / c.split * step + TILE_CYCLES + SPLIT_CYCLES * math.log2(c.split)
    own = _with_epilogue(problem, c, sums, columns) * (DUAL_CYCLES if c.dual and not c.swapped else 1.0)
    own += _late_cycles(problem, c)
    alone = ALONE_SHARE * _leaving_cycles(problem, c, columns) if c.pingpong and waves == 1 else 0.0
    within = "its epilogue" if own > 2 * sums else "loads from L2" if load > multiply else "multiplications"
    products = problem.batches * len(problem.right) * len(c.products)
    moved = problem.graph.moved_bytes + sum(_more_bytes(problem, c))
    most_flops = MOST_FLOPS_OF_FLOAT8 if is_float8 else MOST_FLOPS_OF_TF32 if tf32 else MOST_FLOPS
    flops = 2 * _multiplied_rows(problem, c) * problem.n * problem.k * products
    if c.dual and not c.swapped:
        most_flops /= 1 + DUAL_POWER[c.pingpong] * min(1.0, flops / LONG_FLOPS)
    work = {
        within: (waves * own + alone) / CLOCK,
        "bytes of device memory": moved / BANDWIDTH * (1 + LINE_SHARE * 128 / (c.tile_k * factor_bytes(problem, c))),
        "the card's power": flops / most_flops,
    }
    seconds = LAUNCH_SECONDS + _norm(work.values(), SHARPNESS)
    seconds += sum(COPY_SECONDS + moved / BANDWIDTH for moved in _bytes_beside(problem, c))
    busy = tiles * c.split / (waves * resident)
    return Prediction(seconds, tiles, waves, busy, max(work, key=lambda name: work[name]))


def _multiplied_rows(problem: ContractionProblem, c: Tiles) -> int:
    """Of the result; rows of other groups in a tile are multiplied, too, and no zeros as those behind a matrix."""
    if problem.ends is None:
        return problem.m
    lines = c.tile_n * c.cluster_n if c.swapped else c.tile_m * c.cluster_m
    return problem.tiles_down(lines) * lines


def _with_epilogue(problem: ContractionProblem, c: Tiles, products: float, columns: int) -> float:
    """Cycles of a tile, with those of its epilogue: beside the other warpgroup's tile, or after the products."""
    leaving = _leaving_cycles(problem, c, columns)
    return max(products, (products + leaving) / 2) if c.pingpong else products + leaving


def _leaving_cycles(problem: ContractionProblem, c: Tiles, columns: int) -> float:
    """Of a tile's epilogue: its instructions and stores; of a shared tile those that nothing hides."""
    count = problem.epilogue_instructions + (ORDER_INSTRUCTIONS if problem.order else 0)
    stored = sum(ITEM_BYTES[o.dtype] for o in problem.epilogue.outputs) * c.tile_m / STORED_BYTES
    if not problem.epilogue.outputs:  # registers hold what a row comes to
        return _instruction_cycles(problem, c, count)
    if c.pingpong:
        return min(c.tile_n, columns) * stored + _instruction_cycles(problem, c, count + SUM_INSTRUCTIONS)
    rounds = ROUND_CYCLES * c.tile_n / c.columns
    return rounds + (c.tile_n - c.columns) * stored + _instruction_cycles(problem, c, max(0, count - SUM_INSTRUCTIONS))


def _late_cycles(problem: ContractionProblem, c: Tiles) -> float:
    """Of a tile of two products: what it waits for operands that have a number for each sum."""
    if not c.dual:
        return 0.0
    late = [operand for operand in problem.epilogue.operands if varies_over(operand, swapped=c.swapped) == "mn"]
    return LATE_CYCLES[c.pingpong] * len(late) * (c.rows * c.tile_n // 128)


def _instruction_cycles(problem: ContractionProblem, c: Tiles, count: int) -> float:
    """Of so many instructions for each sum of a warp; code that no loop makes shorter is read for every tile."""
    sums = c.rows * c.tile_n // 128
    if in_a_loop(problem, c):
        return sums * (count + LOOP_INSTRUCTIONS) * INSTRUCTION_CYCLES
    code = INSTRUCTION_BYTES * sums * count
    missed = min(1.0, max(0.0, (code - LONGEST_CODE) / (CODE_BYTES - LONGEST_CODE)))
    return sums * count * (INSTRUCTION_CYCLES + (MISSED_CYCLES - INSTRUCTION_CYCLES) * missed)


def _norm(parts: Iterable[float], exponent: float) -> float:
    """A maximum whose smaller parts count a little: they do not overlap altogether."""
    return math.pow(math.fsum(math.pow(part, exponent) for part in parts), 1 / exponent)


def _load_cycles(problem: ContractionProblem, c: Tiles, rows: int, columns: int) -> float:
    """Of a k-tile for a multiprocessor; lines outside of the matrices are those of the last tile, shared among all.

    Blocks of a cluster each load a part of a tile, and wait for the one whose part has these lines.
    """
    bytes_of_line = c.tile_k * item_bytes(problem, c)
    boxes = math.ceil(c.tile_k * factor_bytes(problem, c) / 128) * (c.parts if c.ahead else 1)
    twice = 2 if c.dual else 1  # tiles of right factors, which are the left ones where the result is transposed
    down, across = (twice, 1) if c.swapped else (1, twice)
    load = (c.tile_m * down / c.cluster_n + c.tile_n * across / c.cluster_m) * bytes_of_line / LOADED_BYTES
    load += OUTSIDE_CYCLES * boxes * min(_outside(columns, c.tile_n), c.tile_n / c.cluster_m)
    if isinstance(problem.b, Seen):  # there is a position in each row, of another image or of none
        channels = problem.k // math.prod(problem.b.windows.taps)
        beyond = 1 / math.ceil(channels / c.tile_k) if channels % c.tile_k else 0.0  # of k-tiles: channels of no image
        load += WINDOW_CLUSTER_CYCLES if c.cluster_m > 1 else 0.0
        return load + (WINDOW_CYCLES + OUTSIDE_CYCLES * beyond) * c.tile_m
    return load + OUTSIDE_CYCLES * boxes * min(_outside(rows, c.tile_m), c.tile_m / c.cluster_n)


def _outside(lines: int, tile: int) -> float:
    """Of a tile's lines those outside of the matrix, on average."""
    tiles = max(1, math.ceil(lines / tile))
    return (tiles * tile - lines) / tiles


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
        yield from (2 * side.bytes * _copied_for_one(side) for side in copied_factors(problem, c))


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


def why(problem: ContractionProblem, c: Tiles) -> str:
    """Sentences for the head of the kernel: why this configuration, and what time is predicted."""
    return " ".join(_reasons(problem, c))


def _reasons(problem: ContractionProblem, c: Tiles) -> Iterator[str]:
    found = predict(problem, c)
    shape = f"{problem.m} x {problem.n} x {problem.k}" + (f", {problem.batches} times" if problem.batches > 1 else "")
    shape += "" if problem.ends is None else f", rows of {problem.groups} groups"
    transposed = " of the transposed result" if c.swapped else ""
    split = f", each by {c.split} blocks," if c.split > 1 else ""
    tiles = f"{found.tiles} tiles of {c.tile_m} x {c.tile_n}{transposed}{split}"
    yield f"{shape}: {tiles} keep 132 multiprocessors busy for {found.busy_waves}."
    yield f"Predicted on an H200: {found.seconds * 1e6:.0f} us, mostly {found.bound}."
    yield f"{c.stages} stages of {c.tile_k} of k are in flight."
    if c.cluster_m * c.cluster_n > 1:
        yield "Two blocks of a cluster load what they share once: less traffic from L2, and less power."
    if problem.order:
        yield "Sums are stored at their positions: no launch after it puts phases in order."
    if c.joined:
        yield "Images follow each other in tiles: the rows of one alone would leave them half empty."
    if moved_outputs(problem, c):
        yield "A launch after it moves rows of the result together, which TMA stores apart."
    if c.ahead:
        yield "Launches before it split each number of both factors into parts."
        return
    turned = turned_factors(problem, c)
    for matrix in copied_factors(problem, c):
        cause = "wgmma reads tf32 along k alone" if matrix in turned else "TMA cannot read it in place"
        yield f"{matrix.code.name} is copied first, {matrix.bytes / 1e6:.3g} MB: {cause}."

"""How long a configuration of sm_100a's kernel takes, by a model of its parts; sentences that say so.

Not measured: no Blackwell GPU has run the kernel. Rates are those of a B200's data sheet (`timing/roofline.py`); what
no data sheet says is an estimate, and named one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration as Tiles
from cutesmith.patterns.contraction.blackwell.legality import copied_factors, moved_outputs, stage_bytes
from cutesmith.patterns.contraction.tma import Prediction
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.timing.roofline import B200

MULTIPROCESSORS = parse_arch("sm_100a").sm.multiprocessors
PEAK_SHARE = 0.75
"""Of the data sheet's rate of tensor cores that a kernel reaches: an estimate."""

LAUNCH_SECONDS = 8e-6
"""As a pair of events measures it on Hopper (`hopper/prediction.py`)."""

FILL_SECONDS = 1.2e-6
"""From a block's first load to its first product, and from its last product to its last store: an estimate."""

STEP_SECONDS = 2e-8
"""Of a k-tile for its barriers, beside its products: an estimate."""

LATENCY_SECONDS = 1.2e-6
"""From a load to its arrival while all multiprocessors load, which stages in flight hide: Hopper's, 2200 cycles."""

LOADED_BYTES_PER_SECOND = 74 * 1.87e9
"""Of a multiprocessor from L2: what Hopper's loads in a cycle."""

STORED_BYTES_PER_SECOND = 12.9 * 1.87e9
"""Of a multiprocessor while all store: Hopper's."""

ADDED_SECONDS = 1.2e-9
"""Of a column of a k-tile's sums that is added to those of all: two cycles, an estimate."""

STRIP_SECONDS = 1.5e-7
"""Of each strip of columns that leaves, for its load from tensor memory and its barriers: an estimate."""

COPY_SECONDS = 3e-6
"""Of a launch that copies a factor, beside its bytes: Hopper's."""

SHARPNESS = 3.0
"""Of the maximum of multiprocessors and memory: the exponent of a norm, as for Hopper."""


def predict(problem: ContractionProblem, c: Tiles) -> Prediction:
    """What a configuration takes: waves of tiles, as long as their products, loads or stores; or all bytes."""
    images = max(1, problem.batches) if c.joined else 1  # that make up the rows of one product
    rows, columns = (images * problem.n, problem.m) if c.swapped else (problem.m, problem.n)
    tiles = math.ceil(rows / c.tile_m) * math.ceil(columns / c.tile_n) * (problem.batches // images)
    at_once = MULTIPROCESSORS // (2 if c.pair else 1)
    waves = max(1, math.ceil(tiles / at_once))
    multiply, load = _multiply_seconds(problem, c), stage_bytes(problem, c) / LOADED_BYTES_PER_SECOND
    step = max(multiply + STEP_SECONDS, load, LATENCY_SECONDS / max(1, c.stages - 1))
    if c.ahead:
        step = max(step, c.tile_n * ADDED_SECONDS)
    taps = math.prod(problem.windows.taps) if problem.windows else 1  # loaded one by one
    summed = taps * math.ceil(problem.k // taps / c.tile_k) * step
    stored = c.rows * c.tile_n * sum(ITEM_BYTES[output.dtype] for output in problem.epilogue.outputs)
    leaving = STRIP_SECONDS * c.tile_n / c.columns + stored / STORED_BYTES_PER_SECOND
    tile = max(summed, leaving) if c.accumulators > 1 and not c.ahead else summed + leaving
    factors = problem.a.bytes + problem.b.bytes
    parts = factors * (c.parts / 2 - 1) if c.ahead else 0.0  # half as long as their number, each
    work = {
        "loads from L2" if load > multiply else "multiplications": waves * tile + FILL_SECONDS + min(summed, leaving),
        "bytes of device memory": (problem.graph.moved_bytes + parts) / B200.bytes_per_second,
    }
    seconds = LAUNCH_SECONDS + math.pow(math.fsum(part**SHARPNESS for part in work.values()), 1 / SHARPNESS)
    moved = [2.0 * side.bytes for side in copied_factors(problem)]
    if c.ahead:
        moved = [side.bytes * (1 + c.parts / 2) for side in (problem.a, problem.b)]
    moved += [2.0 * problem.batches * problem.m * problem.n * ITEM_BYTES[o.dtype] for o in moved_outputs(problem, c)]
    seconds += sum(COPY_SECONDS + each / B200.bytes_per_second for each in moved)
    return Prediction(seconds, tiles, waves, tiles / (waves * at_once), max(work, key=lambda name: work[name]))


def _multiply_seconds(problem: ContractionProblem, c: Tiles) -> float:
    """Of a k-tile: its products, or its operands' bytes from shared memory where a tile has few columns.

    At the peak a multiprocessor reads 128 rows of A in a quarter of the time of a product with 256 columns.
    """
    dtype = "bfloat16" if c.ahead else problem.a.dtype
    peak = PEAK_SHARE * B200.flops_per_second[dtype] / MULTIPROCESSORS / len(c.products)
    shared = c.tile_n // 2 if c.pair else c.tile_n  # a block of a pair has half of B
    columns = max(c.tile_n, 64 + shared / 2)
    return 2 * c.rows * columns * c.tile_k * len(problem.right) / peak


def why(problem: ContractionProblem, c: Tiles) -> str:
    """Sentences for the head of the kernel: why this configuration, and what time is predicted."""
    return " ".join(_reasons(problem, c))


def _reasons(problem: ContractionProblem, c: Tiles) -> Iterator[str]:
    found = predict(problem, c)
    shape = f"{problem.m} x {problem.n} x {problem.k}" + (f", {problem.batches} times" if problem.batches > 1 else "")
    transposed = " of the transposed result" if c.swapped else ""
    pairs = f"{MULTIPROCESSORS // 2} pairs of multiprocessors" if c.pair else f"{MULTIPROCESSORS} multiprocessors"
    tiles = f"{found.tiles} tiles of {c.tile_m} x {c.tile_n}{transposed}"
    yield f"{shape}: {tiles} keep {pairs} busy for {found.busy_waves}."
    told = "Predicted for a B200, not measured (no Blackwell GPU has run it):"
    yield f"{told} {found.seconds * 1e6:.0f} us, mostly {found.bound}."
    if c.joined:
        yield "Images follow each other in tiles: the rows of one alone would leave them half empty."
    if moved_outputs(problem, c):
        yield "A launch after it moves rows of the result together, which TMA stores apart."
    if c.ahead:
        yield "Launches before it split each number of both factors into parts."
        return
    for matrix in copied_factors(problem):
        yield f"{matrix.code.name} is copied first, {matrix.bytes / 1e6:.3g} MB: TMA cannot read it in place."

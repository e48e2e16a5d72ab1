"""The form of few rows times a computed factor: quantised weights go from memory to registers, and are converted there.

A warp multiplies lines of the weights with all rows by mma.sync, which takes k in any order that both factors share. So
each lane loads 16 bytes of a line, neighbours along k, and has in them its part of several mma. No weights pass
through shared memory. The warps of a block that share lines add up their sums at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cutesmith.devices import SmVersion
from cutesmith.patterns.contraction.analysis import ContractionProblem
from cutesmith.patterns.contraction.arithmetic import Arithmetic
from cutesmith.patterns.contraction.computed import Computed
from cutesmith.patterns.contraction.configurations import SkinnyConfiguration
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND, FLOPS_PER_SECOND, SM_COUNT

QUAD = 4
"""Lanes that share a line, each of which has a run of k."""

TOKENS = (8, 16, 32, 64)
WARPS = ((1, 4), (1, 8), (2, 2), (2, 4), (4, 2), (4, 1))
"""(over lines, over k) of a block."""

DEPTHS = (2, 4, 1)
"""Pieces of k on their way; of equal predictions that of two pieces comes first: 14.7 us where four took 15.6."""

MOST_REGISTERS = 168
"""Of a thread for sums and what is loaded."""

BYTES_ON_THEIR_WAY = 32 * 1024
"""Of a multiprocessor, so that memory is busy: 4.8 TB/s for 0.9 us, an estimate."""

L2_BYTES_PER_SECOND = 5.5e12
"""An estimate."""

L1_BYTES_PER_CYCLE = 64
"""Of a multiprocessor, an estimate for loads of 16 bytes whose lines lie apart."""

KEPT_IN_L1 = 96 * 1024
"""Of the rows, which the blocks of a multiprocessor share, an estimate."""

CLOCK = 1.755e9
ISSUED, HALF_OF_IT, MOST_WARPS = 1.5, 6, 28
"""Instructions that warps of a multiprocessor issue in a cycle when they are many, and how many issue half as many.

On an H200 4 warps issued 0.53 to 0.66, 8 0.81 to 1.02, and 28, the most that were timed, 1.15.
"""

OWN_INSTRUCTIONS = 1.2
"""Of an element beside its function: rounded in pairs, its share of the loads (counted in machine code)."""


def skinny_proposals(problem: ContractionProblem, sm: SmVersion) -> list[SkinnyConfiguration]:
    """Candidates by predicted time; none where the form does not serve."""
    tokens = next((count for count in TOKENS if count >= problem.m), TOKENS[-1])
    found = [
        SkinnyConfiguration(tokens, lines, warps_n, warps_k, depth)
        for lines in (16, 32)
        for warps_n, warps_k in WARPS
        for depth in DEPTHS
    ]
    legal = [c for c in found if not any(skinny_refusals(problem, c, sm))]
    return sorted(legal, key=lambda c: skinny_seconds(problem, c))


def skinny_refusals(problem: ContractionProblem, c: SkinnyConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template cannot be rendered so, or would not run."""
    if not isinstance(problem.b, Computed) or problem.batch or problem.second is not None:
        yield "the product is not one of a matrix and a factor that is computed"
        return
    if (needed := registers(problem.b, c)) > MOST_REGISTERS:
        yield f"{needed} registers a thread: more than {MOST_REGISTERS} spill"
    if (shared := shared_bytes(c)) > sm.smem_per_block:
        yield f"{shared} bytes of shared memory: sm_{sm.number} has {sm.smem_per_block} bytes a block"


def registers(b: Computed, c: SkinnyConfiguration) -> int:
    """Of a thread: sums, numbers of all pieces of k, and of one piece the factor and the rows in 16 bits."""
    sums, numbers = c.lines * c.tokens // 32, 4 * c.depth * c.lines // 8
    return sums + numbers + b.run // 2 * (c.lines // 8) + b.run // 2 * (c.tokens // 8) // 2 + 24


def shared_bytes(c: SkinnyConfiguration) -> int:
    """Of a block: the sums of all its warps."""
    return 4 * (c.lines * c.warps_n + 1) * c.tokens * c.warps_k


def skinny_seconds(problem: ContractionProblem, c: SkinnyConfiguration) -> float:
    """The slowest of memory, L2, L1, instructions and tensor cores, in whole waves of blocks; without the launch."""
    b = problem.b
    assert isinstance(b, Computed)
    blocks = math.ceil(problem.n / (c.lines * c.warps_n)) * math.ceil(problem.m / c.tokens)
    resident = min(65536 // 32 // (registers(b, c) + 8) * 32 // c.threads, 2048 // c.threads) or 1
    per_sm = math.ceil(blocks / SM_COUNT)
    waves = math.ceil(blocks / (SM_COUNT * resident))
    busy = min(1.0, blocks / SM_COUNT) * blocks / (SM_COUNT * per_sm) if blocks > SM_COUNT else blocks / SM_COUNT
    pieces = math.ceil(problem.k / (QUAD * b.run))
    turns = math.ceil(pieces / (c.warps_k * c.depth)) * c.warps_k * c.depth
    on_their_way = min(resident, per_sm) * c.threads * 16 * (c.lines // 8) * min(c.depth, pieces / c.warps_k)
    rate = BYTES_PER_SECOND * busy * min(1.0, on_their_way / BYTES_ON_THEIR_WAY)
    rows = c.tokens * problem.k * 2
    shared = min(resident, per_sm) if rows <= KEPT_IN_L1 else 1
    from_l2 = (b.bytes * math.ceil(problem.m / c.tokens) + blocks * rows / shared) / (L2_BYTES_PER_SECOND * busy)
    lines = c.lines * c.warps_n * per_sm
    through_l1 = per_sm * c.warps_n * rows / (L1_BYTES_PER_CYCLE * CLOCK)
    elements = lines * turns * QUAD * b.run / 32
    warps = min(min(resident, per_sm) * c.threads // 32, MOST_WARPS)
    instructions = elements * (b.instructions + OWN_INSTRUCTIONS + c.tokens / 32)
    issued = instructions * (warps + HALF_OF_IT) / warps / (ISSUED * CLOCK)
    flops = 2 * c.tokens * lines * problem.k / (FLOPS_PER_SECOND[Arithmetic.HALF] / SM_COUNT)
    memory = problem.graph.moved_bytes / rate
    return max(memory, from_l2, through_l1, issued, flops) + 0.3e-6 * waves


def skinny_why(problem: ContractionProblem, c: SkinnyConfiguration) -> str:
    """Sentences: what a warp multiplies, how k is shared, and the loads on their way."""
    told = (
        f"{problem.m} rows fit {math.ceil(problem.m / c.tokens)} tiles of {c.tokens}; a warp multiplies {c.lines} lines"
    )
    told += f" with one, {c.warps_k} warps share k, and a lane loads {c.depth} pieces of it before the first is used."
    return f"{told} {skinny_seconds(problem, c) * 1e6:.3g} µs are predicted."


def skinny_context(problem: ContractionProblem) -> dict[str, object]:
    """What the template needs beside the rest of a contraction."""
    epilogue, b = problem.epilogue, problem.b
    assert isinstance(b, Computed)
    loaded = [operand.loaded(operand.name) for operand in epilogue.operands]
    number = [b.number("mB[line, at]")] if b.takes_number else []
    single = [
        f"Int32(({made.word}) & Uint32(255)).to(Float32) - Float32({float(made.more)})" for made in b.bytes_of
    ] + number
    single += [side.name for side in b.sides]
    taken = [f"bytes_{at}[at]" for at in range(len(b.bytes_of))]
    taken += [b.number("numbers[at]")] if b.takes_number and b.numbers_computed != "Float32" else []
    taken += ["found[at]"] if b.takes_number and b.numbers_computed == "Float32" else []
    taken += [side.name for side in b.sides]
    return {
        "kind": "skinny",
        "b": b,
        "bytes": list(enumerate(b.bytes_of)),
        "taken": ", ".join(taken),
        "single": ", ".join(single),
        "unpacked": ", ".join(f"weights[{at}, at]" for at in range(b.packed)),
        "helpers": list(dict.fromkeys([*epilogue.helpers, *b.helpers])),
        "call": epilogue.call("acc", loaded, list(epilogue.coordinates)),
    }

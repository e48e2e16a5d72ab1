"""The direct form of a convolution of few channels: fused multiply-adds of what each thread reads from the image.

A tile of the general form puts what windows see into shared memory, element by element, which takes longer than the
sums where channels are few. Here a thread has the sums of some features for positions that lie a block of threads
apart, so that neighbouring threads read neighbouring elements. Only the weights pass through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cutesmith.devices import SmVersion
from cutesmith.patterns.contraction.analysis import ContractionProblem, Seen
from cutesmith.patterns.contraction.configurations import DirectConfiguration
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND, SM_COUNT

THREADS = 128

PAD = 4
"""Elements after a line of weights in shared memory, which are written along k: other banks."""

CLOCK = 1.755e9
ISSUED = 4 * 0.6
"""Instructions of warps a cycle of a multiprocessor's 4 schedulers: by three convolutions of KernelBench on an H100."""

SHAPES = ((16, 8), (32, 4), (24, 4), (16, 4), (8, 8), (32, 2), (8, 4))
"""(features, positions) of a thread: up to 128 sums in registers."""

LINE_INSTRUCTIONS, START_INSTRUCTIONS, END_INSTRUCTIONS = 30, 60, 6
"""Of a line of taps: where it begins, and how far the loops are; of where a position's window begins; of a result."""


def direct_proposals(problem: ContractionProblem, sm: SmVersion) -> list[DirectConfiguration]:
    """Candidates by predicted time; none where the form does not serve."""
    found = [DirectConfiguration(features, positions, THREADS) for features, positions in SHAPES]
    legal = [c for c in found if not any(direct_refusals(problem, c, sm))]
    return sorted(legal, key=lambda c: direct_seconds(problem, c))


def direct_refusals(problem: ContractionProblem, c: DirectConfiguration, sm: SmVersion) -> Iterator[str]:
    """A sentence for each reason why the template cannot be rendered so, or would not run."""
    if not isinstance(problem.b, Seen) or problem.accumulator != "Float32":
        yield "the product is not a convolution that is summed up in float32"
        return
    windows = problem.b.windows
    if problem.b.strides[-1] != 1 and problem.b.shape[-1] != 1:
        yield "neighbouring positions do not see neighbours in memory"
    if windows.is_spread or windows.taps_first:
        yield "windows see elements that are spread, or weights have their taps first"
    if (needed := shared_bytes(problem, c)) > min(sm.smem_per_block, 96 * 1024):
        yield f"weights need {needed} bytes of shared memory"


def shared_bytes(problem: ContractionProblem, c: DirectConfiguration) -> int:
    """Of a block: the weights of its features."""
    return 4 * problem.k * (c.features + PAD)


def direct_seconds(problem: ContractionProblem, c: DirectConfiguration) -> float:
    """Instructions of all warps, or accesses to L1 and shared memory, or all bytes; without the launch.

    An access of a warp to L1 takes 1.5 cycles, as rows begin anywhere; one to shared memory 2, estimates both.
    """
    assert isinstance(problem.b, Seen)
    windows = problem.b.windows
    tiles = math.ceil(problem.m / c.features) * math.ceil(problem.n / (c.threads * c.positions))
    warps = problem.batches * tiles * c.threads / 32 / SM_COUNT
    checks = 4 if is_padded(problem) else 0
    lines = problem.k / windows.taps[-1]
    tap = c.features * c.positions + c.features / 4 + c.positions * (1 + checks)
    instructions = problem.k * tap + lines * (LINE_INSTRUCTIONS + 3 * c.positions)
    of_result = END_INSTRUCTIONS + problem.epilogue_instructions
    instructions += c.positions * (START_INSTRUCTIONS + of_result * c.features)
    accesses = problem.k * (1.5 * c.positions + 2 * c.features / 4)
    busy = max(instructions / ISSUED, accesses)
    return max(warps * busy / CLOCK, problem.graph.moved_bytes / BYTES_PER_SECOND)


def direct_why(problem: ContractionProblem, c: DirectConfiguration) -> str:
    """Sentences: why threads read the image themselves, and what each sums up."""
    sums = f"{c.features} features at {c.positions} positions"
    told = f"{problem.m} features of {problem.k} products each are few: tiles in shared memory would take longer."
    return f"{told} A thread sums up {sums} in registers; {direct_seconds(problem, c) * 1e6:.3g} µs are predicted."


def is_padded(problem: ContractionProblem) -> bool:
    """Whether windows may see places where no element is."""
    assert isinstance(problem.b, Seen)
    windows, sizes = problem.b.windows, problem.b.shape[-problem.b.windows.rank :]
    for dim, (size, reach) in enumerate(zip(sizes, windows.reaches, strict=True)):
        last = (windows.law(dim).of(size) - 1) * windows.step[dim]
        if min(0, reach) < windows.start[dim] or last + max(0, reach) - windows.start[dim] >= size:
            return True
    return False


def direct_context(problem: ContractionProblem, c: DirectConfiguration) -> dict[str, object]:
    """What the template needs beside the rest of a contraction."""
    epilogue, windows = problem.epilogue, problem.windows
    assert windows is not None
    loaded = [operand.loaded(operand.name) for operand in epilogue.operands]
    return {
        "kind": "direct",
        "padded": is_padded(problem),
        "again": windows.is_transposed,
        "lines": math.prod(windows.taps[:-1]),
        "call": epilogue.call("acc", loaded, list(epilogue.coordinates)),
    }

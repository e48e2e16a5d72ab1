"""How many neighbouring outputs a thread makes, and the threads of a block, the most promising first."""

from __future__ import annotations

import math
from dataclasses import replace

from cutesmith.patterns.configurations import WindowsConfiguration
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.windows import Span
from cutesmith.patterns.windows.analysis import WindowsProblem

MOST_SEEN = 64
"""Elements of a line that a thread keeps in registers, four bytes each."""

MULTIPROCESSORS, CLOCK = 132, 1.755e9

THREAD = 130
"""Instructions of a thread beside its windows: where it is. The nearest elements of an image of twice the size took
319, 162 and 119 us by threads of 1, 2 and 4 outputs on an H100."""


def proposals(problem: WindowsProblem) -> list[WindowsConfiguration]:
    """Candidates by predicted time: every one is correct for every size and layout."""
    widest = 16 // min(ITEM_BYTES[node.dtype] for node in problem.graph.outputs)
    found = [WindowsConfiguration(128, outputs) for outputs in (8, 4, 2, 1) if outputs <= max(widest, 2)]
    found = [c for c in found if c.outputs == 1 or seen(problem, c) <= MOST_SEEN]
    ordered = _ordered(problem, found)
    if not _has_channels_last(problem):
        return [*ordered, *(replace(c, threads=256) for c in ordered[:2])]
    by_channels = _ordered(problem, [replace(c, by_channels=True) for c in found])
    return [*by_channels, *(replace(c, threads=256) for c in by_channels[:2]), ordered[0]]


def _ordered(problem: WindowsProblem, found: list[WindowsConfiguration]) -> list[WindowsConfiguration]:
    return sorted(found, key=lambda c: tuple(float(f"{seconds:.3g}") for seconds in _predicted(problem, c)))


def _has_channels_last(problem: WindowsProblem) -> bool:
    """Whether neighbours in memory of the images are channels: threads along a line would each read another sector."""
    rank = problem.rank
    inputs = [node for node in problem.graph.nodes() if node.op == "input"]
    images = [node for node in inputs if node.shape[-rank:] == problem.image_shape[-rank:]]
    whole = [node for node in images if math.prod(node.shape[:-rank]) > 1]
    return problem.leading > 0 and bool(whole) and all(_is_channel_next(node, rank) for node in whole)


def _is_channel_next(image: Node, rank: int) -> bool:
    *others, last = zip(image.shape, Input.of(image).stride, strict=True)
    return last[1] > 1 and any(size > 1 and step == 1 for size, step in others[: 1 - rank or None])


def seen(problem: WindowsProblem, c: WindowsConfiguration) -> int:
    """Elements of a line that the windows of neighbouring outputs see; 0 where that is not known in advance."""
    last = problem.spans[-1]
    return (c.outputs - 1) * last.step + last.reach + 1 if isinstance(last, Span) else 0


def vector_of(problem: WindowsProblem, c: WindowsConfiguration) -> int:
    """Elements of the widest access that begins at a multiple of itself for every thread."""
    last = problem.spans[-1]
    assert isinstance(last, Span)
    bytes_each = [ITEM_BYTES[o.dtype] for o in problem.element.operands]
    return math.gcd(16 // min(bytes_each, default=16), c.outputs * last.step)


def _predicted(problem: WindowsProblem, c: WindowsConfiguration) -> tuple[float, float]:
    """Seconds, and those that lines take through L1: where memory decides, fewer lines leave it less to wait for.

    A warp has one line of 128 bytes a cycle from L1, however few bytes of it it asks for. Means of 7 x 7 windows
    took 818, 530 and 248 us by threads of 8, 4 and 2 outputs (evals/results/h100/table/memory): lanes that each have a
    line of the image ask for 32 lines at a time.
    """
    across = problem.positions[-1]
    groups = math.ceil(across / c.outputs)
    lanes = math.prod(problem.anchors[0].shape[: problem.leading]) * math.prod(problem.positions[:-1]) * groups
    warps_per_sm = lanes / 32 / MULTIPROCESSORS
    accesses, elements = _accesses(problem, c)
    lines = accesses * _lines(problem, c, groups) + max(1.0, ITEM_BYTES[problem.graph.outputs[0].dtype] * c.outputs / 4)
    instructions = THREAD + 4 * accesses + 3 * elements + problem.taps * c.outputs
    values = [*(node for node in problem.graph.nodes() if node.op == "input"), *problem.graph.outputs]
    memory = sum(ITEM_BYTES[node.dtype] * math.prod(node.shape) for node in values) / BYTES_PER_SECOND
    through_l1 = warps_per_sm * lines / CLOCK
    return max(memory, through_l1, warps_per_sm * instructions / 4 / CLOCK), through_l1


def _accesses(problem: WindowsProblem, c: WindowsConfiguration) -> tuple[int, int]:
    """How often a thread reads the image, and the elements that it keeps in registers: those its outputs share."""
    last, span = problem.spans[-1], seen(problem, c)
    if not isinstance(last, Span) or span > MOST_SEEN:
        return problem.taps * c.outputs, 0
    vector = 1 if c.by_channels else vector_of(problem, c)
    lead = -last.start % vector
    chunks = range(lead // vector, -(-(lead + span) // vector))
    whole = sum(lead <= chunk * vector and (chunk + 1) * vector <= lead + span for chunk in chunks)
    rows = problem.taps // last.taps
    return rows * (whole + span - whole * vector), rows * span


def _lines(problem: WindowsProblem, c: WindowsConfiguration, groups: int) -> float:
    """Of 128 bytes, that one access of a warp touches: lanes are along the channels, or along a line and then below."""
    item = max((ITEM_BYTES[o.dtype] for o in problem.element.operands), default=4)
    if c.by_channels:
        return max(1.0, 32 * item / 128)
    steps = [size / count for size, count in zip(problem.image_shape[-problem.rank :], problem.positions, strict=True)]
    along = min(32, groups) * c.outputs * steps[-1] * item / 128
    below = problem.image_shape[-1] * (steps[-2] if problem.rank > 1 else 1) * item / 128
    return min(32.0, max(1.0, along) * max(1.0, 32 / min(32, groups) * min(1.0, below)))

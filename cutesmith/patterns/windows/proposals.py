"""How many neighbouring outputs a thread makes, and the threads of a block, the most promising first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cutesmith.patterns.contraction.epilogue import Operand
from cutesmith.patterns.contraction.proposals import BYTES_PER_SECOND
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.windows import Samples, Share, Span
from cutesmith.patterns.windows.analysis import WindowsProblem
from cutesmith.patterns.windows.configuration import WindowsConfiguration
from cutesmith.patterns.windows.forms import form_of, repetitions

MOST_SEEN = 64
"""Elements of a line that a thread keeps in registers, four bytes each."""

MULTIPROCESSORS, CLOCK = 132, 1.755e9

SECTOR = 32
"""Bytes of memory that are written at once."""

LINE = 0.7
"""Cycles of L1 for each line of 128 bytes that a warp asks for, however few bytes of it."""

L1_OF_A_WARP = 16384
"""Bytes. Means of 11 x 11 windows took 359, 315 and 282 us by threads of 4, 2 and 1 outputs on an H200, 258 at the rate
of memory: their warps read 5632, 2816 and 1408 bytes of a line, and fewer resident warps have them in L1."""

THREAD = 130
"""Instructions of a thread beside its windows: where it is. The nearest elements of an image of twice the size took
319, 162 and 119 us by threads of 1, 2 and 4 outputs on an H100."""


def proposals(problem: WindowsProblem) -> list[WindowsConfiguration]:
    """Candidates by predicted time: every one is correct for every size and layout."""
    widest = 16 // min(ITEM_BYTES[node.dtype] for node in problem.graph.outputs)
    found = [WindowsConfiguration(128, outputs) for outputs in (8, 4, 2, 1) if outputs <= max(widest, 2)]
    found = [c for c in found if c.outputs == 1 or seen(problem, c) <= MOST_SEEN]
    found += [repeated for c in found for repeated in _repeated(problem, c)]
    ordered = _ordered(problem, found)
    if not _has_channels_last(problem):
        return [*ordered, *(replace(c, threads=256) for c in ordered[:2])]
    by_channels = [replace(c, by_channels=True) for c in found if c.lines == 1]
    if problem.weights is None and with_channels_last(problem) and _gives_channels_last(problem):
        items = [ITEM_BYTES[o.dtype] for o in problem.element.operands]
        by_channels.append(WindowsConfiguration(128, max(widest, 16 // min(items)), by_channels=True, in_channels=True))
    by_channels = _ordered(problem, by_channels)
    return [*by_channels, *(replace(c, threads=256) for c in by_channels[:2]), ordered[0]]


def why(problem: WindowsProblem, c: WindowsConfiguration) -> str:
    """Sentences: what a thread makes and reads of the image, who its neighbours are, what its time is spent on."""
    work, (seconds, through_l1) = _work(problem, c), _predicted(problem, c)
    along = "channels" if c.in_channels else "outputs of a line"
    made = f"{c.outputs} neighbouring {along}" if c.outputs > 1 else "one output"
    made += f" in {c.lines} lines" if c.lines > 1 else ""
    lanes = "channels, which are neighbours in memory" if c.by_channels else "a line"
    spent = "L1" if through_l1 == seconds else "memory" if _memory(problem, c) == seconds else "instructions and memory"
    told = f"A thread makes {made} by {work.accesses} accesses to the image, its lanes lie along {lanes}."
    return f"{told} Of {1e6 * seconds:.3g} µs that are predicted, most are for {spent}."


def _repeated(problem: WindowsProblem, c: WindowsConfiguration) -> Iterator[WindowsConfiguration]:
    """Those of several lines whose samples lie as those of their neighbours."""
    if problem.rank > 1:
        several = (replace(c, lines=lines) for lines in (4, 2))
        yield from (each for each in several if form_of(problem, each) == "repeated")


def _ordered(problem: WindowsProblem, found: list[WindowsConfiguration]) -> list[WindowsConfiguration]:
    return sorted(found, key=lambda c: tuple(float(f"{seconds:.3g}") for seconds in _predicted(problem, c)))


def _has_channels_last(problem: WindowsProblem) -> bool:
    """Whether neighbours in memory of the images are channels: threads along a line would each read another sector."""
    rank = problem.rank
    inputs = [node for node in problem.graph.nodes() if node.op == "input"]
    images = [node for node in inputs if node.shape[-rank:] == problem.image_shape[-rank:]]
    whole = [node for node in images if math.prod(node.shape[:-rank]) > 1]
    return (
        problem.leading > 0
        and bool(whole)
        and all(_is_channel_next(node.shape, Input.of(node).stride, rank) for node in whole)
    )


def with_channels_last(problem: WindowsProblem) -> list[Operand]:
    """The tensors whose traced layout is why PyTorch's results have the channels last, where these have."""
    operands = [*problem.element.operands, *problem.epilogue.operands]
    return [o for o in operands if o.rank > problem.rank and _is_channel_next(o.shape, o.strides, problem.rank)]


def _gives_channels_last(problem: WindowsProblem) -> bool:
    """Whether PyTorch's results have the channels last, too: a launch between others writes dense ones."""
    graph = problem.graph
    shapes = [node.shape for node in graph.outputs]
    return len(graph.output_strides) == len(shapes) and all(
        _is_channel_next(shape, strides, problem.rank)
        for shape, strides in zip(shapes, graph.output_strides, strict=True)
    )


def _is_channel_next(shape: Shape, strides: Shape, rank: int) -> bool:
    """Whether neighbours in memory are those of a dimension before the positions."""
    *others, last = zip(shape, strides, strict=True)
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

    Means of 7 x 7 windows, an element at a time, took 818, 530 and 248 us by threads of 8, 4 and 2 outputs
    (evals/results/h100/table/memory): lanes that each have a line of the image ask for 32 lines at a time.
    """
    work = _work(problem, c)
    through_l1 = work.threads / 32 / MULTIPROCESSORS * work.lines * LINE / CLOCK
    memory = _memory(problem, c) * (1 + _walked(problem, c) / L1_OF_A_WARP)
    return max(memory, through_l1, warp_instructions(problem, c) / MULTIPROCESSORS / 4 / CLOCK), through_l1


def warp_instructions(problem: WindowsProblem, c: WindowsConfiguration) -> float:
    """Of all threads. Four times the size, bicubic, took 114 us on an H200; twice, trilinear, 36."""
    work = _work(problem, c)
    return work.threads / 32 * (THREAD + 4 * work.accesses + 3 * work.elements + work.combined)


def _walked(problem: WindowsProblem, c: WindowsConfiguration) -> float:
    """Bytes of a line of the image that a warp reads vector after vector, and that L1 has to keep meanwhile."""
    span = seen(problem, c)
    if c.by_channels or not 0 < span <= MOST_SEEN:
        return 0
    last = problem.spans[-1]
    assert isinstance(last, Span)
    return min(32, math.ceil(problem.positions[-1] / c.outputs)) * c.outputs * last.step * _item_bytes(problem)


def _memory(problem: WindowsProblem, c: WindowsConfiguration) -> float:
    """Seconds that memory takes. Lanes along channels store a part of a sector each where results lie along lines.

    Pooling of 2 x 2 windows in bfloat16 took 166 and 235 us by such threads of 8 and 4 outputs on an H200.
    """
    inputs = [node for node in problem.graph.nodes() if node.op == "input"]
    apart = c.by_channels and not c.in_channels
    stored = 0.0
    for node in problem.graph.outputs:
        bytes_each = ITEM_BYTES[node.dtype] * c.outputs
        stored += ITEM_BYTES[node.dtype] * math.prod(node.shape) * (max(1.0, SECTOR / bytes_each) if apart else 1)
    return (sum(ITEM_BYTES[node.dtype] * math.prod(node.shape) for node in inputs) + stored) / BYTES_PER_SECOND


@dataclass(frozen=True)
class Work:
    """Of each thread: `accesses` to the image, `elements` prepared, steps that combine them, `lines` of L1."""

    threads: float
    accesses: int
    elements: int
    combined: int
    lines: float


def _work(problem: WindowsProblem, c: WindowsConfiguration) -> Work:
    shape, item = problem.anchors[0].shape, _item_bytes(problem)
    results, form = math.prod((*shape[: problem.leading], *problem.positions)), form_of(problem, c)
    stores = max(1.0, ITEM_BYTES[problem.graph.outputs[0].dtype] * c.outputs / 4)
    if form == "channels":
        taps, channels = problem.taps, shape[problem.leading - 1]
        threads = results / channels * math.ceil(channels / c.outputs)
        return Work(threads, taps, taps * c.outputs, taps * c.outputs, taps * c.outputs * item / 4 + stores)
    across, below = (math.ceil(problem.positions[-1] / c.outputs), problem.positions[-2:-1])
    threads = results / problem.positions[-1] * across
    if form == "repeated":
        threads = threads / math.prod(below) * math.ceil(math.prod(below) / c.lines)
        return _repeated_work(problem, c, threads, stores)
    accesses, elements = _accesses(problem, c)
    lines = accesses * _lines(problem, c, across) + stores
    return Work(threads, accesses, elements, problem.taps * c.outputs * (6 if problem.is_sampled else 1), lines)


def _repeated_work(problem: WindowsProblem, c: WindowsConfiguration, threads: float, stores: float) -> Work:
    """Each line that is seen is combined along itself, then in the lines of results: two steps for each tap."""
    along, *over = repetitions(problem, c)
    item, last = _item_bytes(problem), problem.spans[-1]
    assert isinstance(last, Samples)
    others = problem.taps // last.taps ** (1 + len(over))
    seen_lines = others * math.prod(each.seen for each in over)
    accesses = along.step // math.gcd(16 // item, along.step) + max(0, along.seen - along.step)
    lines = seen_lines * accesses * max(1.0, 32 * along.step * item / 128) + stores * c.lines
    combined = last.taps * c.outputs * (seen_lines + others * c.lines)
    return Work(threads, seen_lines * accesses, seen_lines * along.seen, combined, lines)


def _item_bytes(problem: WindowsProblem) -> int:
    """Of the smallest element of the image's tensors."""
    return min((ITEM_BYTES[o.dtype] for o in problem.element.operands), default=4)


def _accesses(problem: WindowsProblem, c: WindowsConfiguration) -> tuple[int, int]:
    """How often a thread reads the image, and the elements that it keeps in registers: those its outputs share."""
    last, span = problem.spans[-1], seen(problem, c)
    if isinstance(last, Share):
        return _chunk_accesses(problem, c, last)
    if not isinstance(last, Span) or span > MOST_SEEN:
        return problem.taps * c.outputs, 0
    vector = 1 if c.by_channels else vector_of(problem, c)
    lead = -last.start % vector
    chunks = range(lead // vector, -(-(lead + span) // vector))
    whole = sum(lead <= chunk * vector and (chunk + 1) * vector <= lead + span for chunk in chunks)
    rows = problem.taps // last.taps
    return rows * (whole + span - whole * vector), rows * span


def _chunk_accesses(problem: WindowsProblem, c: WindowsConfiguration, last: Share) -> tuple[int, int]:
    """Those of windows that are read in the widest vectors in which a line of the image can be."""
    size = problem.image_shape[-1]
    vector = 1 if c.by_channels else math.gcd(16 // _item_bytes(problem), size)
    taps = math.ceil(size / last.count)
    chunks = math.ceil(taps / vector) + (size % (last.count * vector) != 0 and vector > 1)
    rows = problem.taps // taps
    return rows * chunks * c.outputs, rows * chunks * vector * c.outputs


def _lines(problem: WindowsProblem, c: WindowsConfiguration, groups: int) -> float:
    """Of 128 bytes, that one access of a warp touches: lanes are along the channels, or along a line and then below."""
    item = max((ITEM_BYTES[o.dtype] for o in problem.element.operands), default=4)
    if c.by_channels:
        return max(1.0, 32 * item / 128)
    steps = [size / count for size, count in zip(problem.image_shape[-problem.rank :], problem.positions, strict=True)]
    along = min(32, groups) * c.outputs * steps[-1] * item / 128
    below = problem.image_shape[-1] * (steps[-2] if problem.rank > 1 else 1) * item / 128
    return min(32.0, max(1.0, along) * max(1.0, 32 / min(32, groups) * min(1.0, below)))

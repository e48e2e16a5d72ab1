"""How many neighbouring outputs a thread makes, and the threads of a block, the most promising first."""

from __future__ import annotations

import math
from dataclasses import replace

from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.windows import Span
from cutesmith.patterns.pattern_plan import WindowsConfiguration
from cutesmith.patterns.windows.analysis import WindowsProblem

MOST_SEEN = 64
"""Elements of a line that a thread keeps in registers, four bytes each."""


def proposals(problem: WindowsProblem) -> list[WindowsConfiguration]:
    """Candidates by predicted waste: every one is correct for every size and layout."""
    widest = 16 // min(ITEM_BYTES[node.dtype] for node in problem.graph.outputs)
    found = [WindowsConfiguration(128, outputs) for outputs in (8, 4, 2, 1) if outputs <= max(widest, 2)]
    found = [c for c in found if c.outputs == 1 or seen(problem, c) <= MOST_SEEN]
    ordered = sorted(found, key=lambda c: _waste(problem, c))
    along_lines = [*ordered, *(WindowsConfiguration(256, c.outputs) for c in ordered[:2])]
    if not _has_channels_last(problem):
        return along_lines
    return [*(replace(c, by_channels=True) for c in along_lines), along_lines[0]]


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


def _waste(problem: WindowsProblem, c: WindowsConfiguration) -> float:
    """Accesses for each output: lines are cut into whole groups, whose windows share elements."""
    across = problem.positions[-1]
    groups = math.ceil(across / c.outputs)
    loads = max(seen(problem, c), 1) / min(c.outputs, 4) + 1  # four elements an access, at least one a group
    return groups * loads / across

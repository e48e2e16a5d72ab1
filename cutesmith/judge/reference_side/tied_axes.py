"""Which axes of the inputs have to have one length, and which have it by chance, as both sides of a square matrix.

The reference decides: an axis that it takes alone at another length is free, others go with axes of other inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import torch

from cutesmith.judge.reference_side.cases import Values, resize

MOST_TRIED = 64  # groups in all, each a run of the reference on few elements
Axis = tuple[int, int]  # an input and its dimension
Axes = tuple[Axis, ...]


def axes_of(inputs: Sequence[Any], size: int) -> Axes:
    """All axes of that size."""
    tensors = [(index, value) for index, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
    return tuple((index, axis) for index, value in tensors for axis, own in enumerate(value.shape) if own == size)


def free_of_each_other(
    inputs: Sequence[Any], size: int, smaller: dict[int, int], refusal: Callable[[Values], str]
) -> list[Axes]:
    """Groups of axes of a size that can be lengthened without the others; empty where all belong together.

    Tried at twice what `smaller` makes of the size. An axis that the reference takes in no group is in none.
    """
    axes = axes_of(inputs, size)
    if len(axes) == len({index for index, _ in axes}):  # no input has it twice: one symbol, such as a number of rows
        return []
    groups: list[Axes] = []
    tries = iter(range(MOST_TRIED))
    for axis in axes:
        if any(axis in group for group in groups):
            continue
        left = tuple(other for other in axes if not any(other in group for group in groups))
        for group, _ in zip(_candidates(axis, axes, left), tries):
            if not refusal(resize(inputs, smaller, dict.fromkeys(group, 2 * smaller[size]))):
                groups.append(group)
                break
    return groups if all(len(group) < len(axes) for group in groups) else []


def _candidates(axis: Axis, axes: Axes, left: Axes) -> Iterator[Axes]:
    """Groups with this axis: alone, with axes of others, at most one of each input and the fewest first; all `left`."""
    others = [other for other in axes if other[0] != axis[0]]
    for count in range(len({number for number, _ in others}) + 1):
        for group in combinations(others, count):
            if len({number for number, _ in group}) == count:
                yield tuple(sorted((axis, *group)))
    yield left

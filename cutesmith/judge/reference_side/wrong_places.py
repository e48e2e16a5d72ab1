"""Where the wrong elements of an output are, in words: a tail, a tile, every k-th column, every k-th element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

_MOST_NAMED = 2  # dimensions, those that say the most first
_MOST_OF_A_DIMENSION, _NEARLY_ALL = 0.5, 0.9  # indices with wrong elements, and of these all are
_MOST_LISTED = 3  # of such indices
_FEWEST_ON_A_DIAGONAL = 4  # elements
_FEWEST_IN_STEP = 16  # elements: so many places drawn at random have a common step once in 30,000 times


def where(wrong: torch.Tensor, shape: Sequence[int]) -> str:
    """Such as "the last 12 of dimension 1"; empty where they lie in no pattern. `wrong`: flat mask of an output."""
    count = int(wrong.sum())
    if count < 2 or count == wrong.numel():
        return "everywhere" if count > 1 else ""
    mask = wrong.view(tuple(shape))
    if diagonal := _on_a_diagonal(mask):
        return diagonal
    told = [(share, text) for axis in range(mask.ndim) if (found := _along(mask, axis)) for share, text in [found]]
    return ", ".join(text for _, text in sorted(told)[:_MOST_NAMED]) or _in_steps(wrong)


def _on_a_diagonal(mask: torch.Tensor) -> str:
    """Such as "where dimensions 0 and 1 have one index", of a matrix; empty where they lie elsewhere too."""
    if mask.ndim != 2:
        return ""
    rows, columns = mask.nonzero().unbind(1)
    distances = columns - rows
    first = int(distances[0])
    if len(rows) < _FEWEST_ON_A_DIAGONAL or bool((distances != first).any()):
        return ""
    if not first:
        return "where dimensions 0 and 1 have one index"
    return f"where the index of dimension 1 is that of dimension 0 {'+' if first > 0 else '-'} {abs(first)}"


def _along(mask: torch.Tensor, axis: int) -> tuple[float, str] | None:
    """The share of a dimension's indices that have wrong elements, and which; None without a pattern."""
    others = [other for other in range(mask.ndim) if other != axis]
    taken = mask.amax(dim=others) if others else mask
    indices, size = taken.nonzero().view(-1), mask.shape[axis]
    first, last, number = int(indices[0]), int(indices[-1]), indices.numel()
    if number == size:
        return None
    share = number / size
    if number == last - first + 1:
        if number == 1:
            return share, f"index {first} of dimension {axis}"
        ends = {first == 0: f"the first {number}", last == size - 1: f"the last {number}"}
        return share, f"{ends.get(True, f'{first} to {last}')} of dimension {axis}"
    steps = indices.diff()
    step = int(steps[0])
    if number > 2 and bool((steps == step).all()):
        return share, f"one in {step} from {first} on of dimension {axis}"
    if share > _MOST_OF_A_DIMENSION or int(mask.sum()) < _NEARLY_ALL * number * (mask.numel() // size):
        return None
    more = f" and {number - _MOST_LISTED} more" if number > _MOST_LISTED else ""
    return share, f"at {', '.join(map(str, indices[:_MOST_LISTED].tolist()))}{more} of dimension {axis}"


def _in_steps(wrong: torch.Tensor) -> str:
    """The common step of the places of all that is wrong; those between may be right by chance."""
    places = wrong.nonzero().view(-1)
    step = math.gcd(*set(places.diff().tolist()))
    if step == 1 or places.numel() < _FEWEST_IN_STEP:
        return ""
    return f"in steps of {step} from {int(places[0]) % step} on, counted through all dimensions"

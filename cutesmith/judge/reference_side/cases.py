"""Inputs with other sizes than a problem draws; `other_shapes` says which, and `judge.draws` has other values.

Shapes change by symbol: every dimension of the same size is taken for the same one, so that inputs stay consistent. The
reference decides what is allowed: a derived case that it refuses is dropped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cutesmith.judge.draws.kinds import Structure, is_distinct, structure_of
from cutesmith.judge.reference_side.size_rules import FREE, SizeRules, possible_rules

Values = list[Any]
FAR_TOO_MANY = 8  # times the elements that are wanted: slow; above, inputs are hopeless where nothing is executed fast
LEAST_COLUMNS = 256
# Their first rows and columns have the same structure.
OF_A_BEGINNING = (Structure.SEQUENCE, Structure.SORTED, Structure.TRIANGLE, Structure.IDENTITY, Structure.SYMMETRIC)
TILE = 128  # no size needs to be divisible by more
_KEPT = "not shrunk further, as kernels are written for a number of columns"


def distinct_sizes(inputs: Sequence[Any]) -> list[int]:
    """Distinct dimension sizes above 1, those of the last dimensions first.

    Those come last that one tensor has twice among its outer dimensions, such as as many heads as batches: there a
    large size counts twice.
    """
    found: dict[int, None] = {}
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    for depth in range(1, max((value.ndim for value in tensors), default=0) + 1):
        for value in tensors:
            if value.ndim >= depth and value.shape[-depth] > 1:
                found[value.shape[-depth]] = None
    twice = {size for value in tensors for size, count in Counter(value.shape[:-2]).items() if count > 1}
    return sorted(found, key=twice.__contains__)


def smaller_sizes(inputs: Sequence[Any], most_elements: int) -> Iterator[dict[int, int]]:
    """Ways to give the inputs fewer elements, the best first, for a reference that may refuse some; none if they fit.

    Each maps sizes to smaller ones, and a size changes everywhere at once; of the inputs only shapes count. First the
    outer dimensions are halved, the largest first, and vectors with them whose only dimension is one of those (a scale
    or a label of each row). Columns stay, as kernels are written for a number of them: sizes that are a last dimension
    of a matrix, or a vector's that are nothing else. Where that leaves more than `FAR_TOO_MANY` times too many
    elements, columns are halved as well, to at least `LEAST_COLUMNS`. Last come the sizes that the largest input shares
    with no other: those of a module's parameters are fixed by the module.
    """
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if count_elements(tensors, {}) <= most_elements:
        return
    columns = {value.shape[-1] for value in tensors if value.ndim >= 2}
    vectors = {value.shape[0] for value in tensors if value.ndim == 1}
    outer = {size for value in tensors for size in value.shape[:-1]} - columns
    rows = halved(tensors, dict.fromkeys(outer, 1), most_elements)
    least = {**dict.fromkeys(columns | vectors, LEAST_COLUMNS), **dict.fromkeys(outer, 1)}
    ways = [rows, halved(tensors, dict.fromkeys(outer - vectors, 1), most_elements)]
    if count_elements(tensors, rows) > FAR_TOO_MANY * most_elements:
        ways.insert(0, halved(tensors, least, most_elements))
    largest, *others = sorted(tensors, key=torch.Tensor.numel, reverse=True)
    own = set(largest.shape) - {size for value in others for size in value.shape} if others else set()
    ways.append(halved(tensors, {size: low for size, low in least.items() if size in own}, most_elements))
    for number, sizes in enumerate(ways):
        if sizes and sizes not in ways[:number]:
            yield sizes


def multiples_with_their_parts(inputs: Sequence[Any], most_elements: int) -> Iterator[dict[int, int]]:
    """The same where a size is several times another one, as the gates of a cell are of its units: both shrink."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    sizes = {size for value in tensors for size in value.shape if size > 1}
    columns = {value.shape[-1] for value in tensors}
    for rules in possible_rules(sizes, ()):
        if all(len(relation.of) == 1 and not relation.more for relation in rules.relations):
            least = {size: LEAST_COLUMNS if size in columns else 1 for size in rules.free([*sizes])}
            yield halved(tensors, least, most_elements, rules)


@dataclass(frozen=True)
class Fitted:
    """Inputs for a slow machine; `size` says how many elements they have and, where too many, why not fewer.

    `sizes` are those that became smaller, by what they were.
    """

    values: Values
    size: str
    sizes: dict[int, int] = field(default_factory=dict)


def fit(inputs: Sequence[Any], most_elements: int, refusal: Callable[[Values], str]) -> Fitted:
    """The inputs with the first of `smaller_sizes` for which `refusal` gives no reason against it, else as they are.

    Where those are `FAR_TOO_MANY` times too many still, the first of `multiples_with_their_parts`, if it takes one.
    """
    sizes, refused = _first_taken(smaller_sizes(inputs, most_elements), inputs, refusal)
    if _elements(resize(inputs, sizes)) > FAR_TOO_MANY * most_elements:
        related, _ = _first_taken(multiples_with_their_parts(inputs, most_elements), inputs, refusal)
        sizes = related or sizes
    values = resize(inputs, sizes)
    why = f"reference_fn refuses fewer: {refused}" if refused and not sizes else _KEPT
    return Fitted(values, size_of(values, most_elements, why), sizes)


def _first_taken(
    ways: Iterable[dict[int, int]], inputs: Sequence[Any], refusal: Callable[[Values], str]
) -> tuple[dict[int, int], str]:
    """The first new sizes that are not refused, none if all are; and why the first were."""
    refused = ""
    for sizes in ways:
        if not (why := refusal(resize(inputs, sizes))):
            return sizes, refused
        refused = refused or why
    return {}, refused


def size_of(values: Sequence[Any], most_elements: int, why: str = "") -> str:
    """Such as "2,048 elements"; with the reason where they are more than wanted."""
    elements = _elements(values)
    return f"{elements:,} elements" + (f"; {why}" if why and elements > most_elements else "")


def _elements(values: Sequence[Any]) -> int:
    return count_elements([value for value in values if isinstance(value, torch.Tensor)], {})


def halved(
    tensors: Sequence[torch.Tensor], least: dict[int, int], most_elements: int, rules: SizeRules = FREE
) -> dict[int, int]:
    """New sizes for those that `least` maps to the least they may become, the largest halved first, until all fits.

    Only sizes that changed, with those that follow from them by the `rules`.
    """
    sizes = {size: size for size in least}
    while count_elements(tensors, rules.complete(sizes)) > most_elements:
        halves = {size: half_of(now) for size, now in sizes.items() if half_of(now) >= least[size]}
        if not halves:
            break
        largest = max(halves, key=sizes.__getitem__)
        sizes[largest] = halves[largest]
    return {old: new for old, new in rules.complete(sizes).items() if old != new}


def half_of(size: int) -> int:
    """Half of a size, still divisible by what vectors and tiles need of it; of an odd one odd, for its remainder."""
    if size % 2:
        return size // 2 | 1 if size > 1 else 0
    return size // 2 if size < LEAST_COLUMNS else size // 2 // math.gcd(size, TILE) * math.gcd(size, TILE)


def count_elements(tensors: Sequence[torch.Tensor], sizes: dict[int, int]) -> int:
    """How many elements tensors have once sizes have changed."""
    return sum(math.prod(sizes.get(size, size) for size in value.shape) for value in tensors)


def resize(inputs: Sequence[Any], sizes: dict[int, int], axes: Mapping[tuple[int, int], int] | None = None) -> Values:
    """Every dimension of a size in `sizes` gets the new one; values are drawn from those that were there.

    `axes`: the new sizes of single dimensions, by input and dimension.
    """
    shapes = [resized(index, value, sizes, axes or {}) for index, value in enumerate(inputs)]
    return [
        _resize(value, shape, sizes) if isinstance(value, torch.Tensor) else value
        for value, shape in zip(inputs, shapes)
    ]


def resized(index: int, value: Any, sizes: dict[int, int], axes: Mapping[tuple[int, int], int]) -> tuple[int, ...]:
    """The shape that `resize` gives the input of that index; empty for a scalar."""
    shape = value.shape if isinstance(value, torch.Tensor) else ()
    return tuple(axes.get((index, axis), sizes.get(size, size)) for axis, size in enumerate(shape))


def _resize(tensor: torch.Tensor, shape: tuple[int, ...], sizes: dict[int, int]) -> torch.Tensor:
    """One tensor; dimensions keep their order in memory."""
    if shape == tensor.shape:
        return _fit_indices(tensor, sizes)
    strides, smaller, structure = tensor.stride(), tensor, structure_of(tensor)
    order = sorted(range(tensor.ndim), key=lambda dimension: -strides[dimension])
    for dimension, (size, new) in enumerate(zip(tensor.shape, shape)):
        if new != size:
            chosen = torch.randint(size, (new,), device=tensor.device)
            if new <= size and is_distinct(tensor):
                chosen = torch.randperm(size, device=tensor.device)[:new]
            if structure is Structure.PERMUTATION:
                return tensor.min() + torch.randperm(new, device=tensor.device, dtype=tensor.dtype)
            if structure in OF_A_BEGINNING:
                chosen = torch.arange(new, device=tensor.device) if new <= size else chosen.sort().values
            smaller = smaller.index_select(dimension, chosen)
    if 0 not in strides:
        inverse = sorted(range(tensor.ndim), key=order.__getitem__)
        smaller = smaller.permute(order).contiguous().permute(inverse)
    return _fit_indices(smaller, sizes)


def _fit_indices(tensor: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
    """Integers that index a dimension (class labels, positions) must stay inside it when it shrinks."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool or tensor.numel() == 0:
        return tensor
    largest = int(tensor.max())
    bounds = [new for old, new in sizes.items() if old > largest >= new > 0]
    if not bounds or structure_of(tensor) is Structure.PERMUTATION:
        return tensor
    if is_distinct(tensor) and tensor.numel() <= min(bounds):
        return torch.randperm(min(bounds), device=tensor.device)[: tensor.numel()].to(tensor.dtype)
    return torch.where(tensor >= 0, tensor % min(bounds), tensor)

"""Arithmetic on shapes: broadcasting, dropped and inserted ones, regrouped dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

Shape = tuple[int, ...]
Group = tuple[list[int], list[int]]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape of right-aligned shapes, as PyTorch broadcasts; RuntimeError where there is none."""
    if shapes and all(shape == shapes[0] for shape in shapes):
        return tuple(shapes[0])
    common = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for at, size in enumerate(shape, len(common) - len(shape)):
            if size != 1 and common[at] not in (1, size):
                raise RuntimeError(f"shapes {shapes} do not broadcast")
            common[at] = size if size != 1 else common[at]
    return tuple(common)


def covers(shapes: Sequence[Shape], shape: Shape) -> bool:
    """Whether shapes broadcast to `shape`, but for ones in front: nothing is expanded that none of them has."""
    return broadcast([*shapes, (1,) * len(shape)]) == shape


def dense_strides(shape: Shape) -> Shape:
    """Those of a row-major tensor, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_dense(shape: Shape, strides: Shape) -> bool:
    """Whether strides, where they are known, are those of a row-major tensor; of a size of 1 they may be anything."""
    steps = zip(strides, dense_strides(shape), shape, strict=False)
    return all(stride == step for stride, step, size in steps if size != 1)


def same_last(first: Shape, second: Shape) -> int:
    """How many of the last sizes are the same in both, and what is before them, which may differ without elements."""
    pairs = zip(reversed(first), reversed(second), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda sizes: sizes[0] == sizes[1], pairs))
    while math.prod(first[: len(first) - same]) != math.prod(second[: len(second) - same]):
        same -= 1
    return same


def without_ones(shape: Shape) -> Shape:
    """The sizes other than 1."""
    return tuple(size for size in shape if size != 1)


def is_squeeze(source: Shape, target: Shape) -> bool:
    """Whether `target` is `source` less some dimensions of size 1; a 1 that moved past another size makes it none."""
    rest = iter(source)
    is_part = all(size in rest for size in target)  # looks on from the size that was found before
    return is_part and len(source) > len(target) and without_ones(source) == without_ones(target)


def kept_positions(source: Shape, target: Shape) -> list[int]:
    """For each dimension of `target`, the dimension of `source` it is; `target` is `source` less some ones."""
    kept: list[int] = []
    at = len(source) - 1
    for place in range(len(target) - 1, -1, -1):
        while source[at] != target[place]:
            at -= 1
        kept.append(at)
        at -= 1
    return kept[::-1]


def squeezed_gaps(source: Shape, target: Shape) -> list[int]:
    """Where ones were dropped, as the number of target dimensions to the right of each."""
    kept = kept_positions(source, target)
    return [sum(1 for place in kept if place > dim) for dim in range(len(source)) if dim not in kept]


def insert_ones(shape: Shape, gaps: Sequence[int]) -> Shape:
    """`shape` with a 1 before its last `gap` dimensions, for each of the descending gaps that lies inside it."""
    sizes = list(shape)
    for gap in gaps:  # from the left: inserting does not move what is to the right
        if gap < len(shape):
            sizes.insert(len(sizes) - gap, 1)
    return tuple(sizes)


def regrouped_shape(shape: Shape, old: Shape, new: Shape) -> Shape | None:
    """What `shape`, broadcast to `old`, becomes when `old` is reshaped to `new`."""
    groups = dimension_groups(old, new)
    if groups is None:
        return None
    sizes = [1] * len(new)
    for before, after in groups:
        if all(shape[dim] == old[dim] for dim in before):
            for dim in after:
                sizes[dim] = new[dim]
        elif any(shape[dim] != 1 for dim in before):
            return None
    return tuple(sizes)


def dimension_groups(old: Shape, new: Shape) -> list[Group] | None:
    """The smallest runs of dimensions of equal product; ones stand alone. None for empty tensors and other counts."""
    if 0 in old or 0 in new or math.prod(old) != math.prod(new):
        return None
    groups: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and old[i] == 1:
            groups.append(([i], []))
            i += 1
        elif j < len(new) and new[j] == 1:
            groups.append(([], [j]))
            j += 1
        else:
            group, i, j = _next_group(old, new, i, j)
            groups.append(group)
    return groups


def common_parts(old: Shape, new: Shape) -> list[Shape] | None:
    """The sizes that each dimension of `new` is split into so that they split those of `old`, too; None if none do."""
    parts: list[Shape] = [() for _ in new]
    for before, after in dimension_groups(old, new) or ():
        sides = [old[dim] for dim in before], [new[dim] for dim in after]
        steps = sorted({1, *(math.prod(sizes[at:]) for sizes in sides for at in range(len(sizes)))})
        if any(large % small for small, large in itertools.pairwise(steps)):
            return None
        for at, dim in enumerate(after):
            inner = math.prod(sides[1][at + 1 :])
            own = [step for step in steps if inner <= step <= inner * new[dim]]
            parts[dim] = tuple(large // small for small, large in itertools.pairwise(own))[::-1] or (1,)
    return parts if all(parts) or not new else None


def is_split(old: Shape, new: Shape) -> bool:
    """Whether a reshape only splits dimensions, or drops and adds such of one element."""
    groups = dimension_groups(old, new)
    return groups is not None and all(len(before) <= 1 for before, _ in groups)


def _next_group(old: Shape, new: Shape, i: int, j: int) -> tuple[Group, int, int]:
    before, after = [i], [j]
    left, right = old[i], new[j]
    while left != right:
        if left < right:
            before.append(before[-1] + 1)
            left *= old[before[-1]]
        else:
            after.append(after[-1] + 1)
            right *= new[after[-1]]
    return (before, after), before[-1] + 1, after[-1] + 1

"""Cases for the emulated GPU that keep one long size of the inputs whole, where all of them are more than it affords.

`cases.smaller_sizes` takes rows away until a call is quick, and what goes wrong beyond the first rows is never seen
there: an index that wraps, a grid that ends early, a loop over the first tiles. Here each size that was shrunk stays as
it is and the others give way, as far as the reference takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cutesmith.judge.reference_side.cases import Values, count_elements, half_of, halved, resize, resized
from cutesmith.judge.reference_side.requests import LongSize
from cutesmith.judge.reference_side.tied_axes import free_of_each_other

MOST_CASES = 4  # the sizes that were shrunk the most
NARROW = 32  # columns: a warp's lanes, and enough for vectors of 16 bytes
LEAST_ROWS = 2  # that a second one is there

Sizes = dict[int, int]
Lengths = dict[tuple[int, int], int]
Refusal = Callable[[Values], str]  # why these inputs cannot be used; empty when they can


def long_sizes(inputs: Sequence[Any], shrunk: Sizes, refusal: Refusal) -> list[LongSize]:
    """The sizes that deserve a longer case: those that were shrunk the most, on each axis that is free of others."""
    most = sorted(shrunk, key=lambda size: (shrunk[size] / size, -size))[:MOST_CASES]
    free = {size: free_of_each_other(inputs, size, shrunk, refusal) for size in most}
    return [LongSize(size, axes) for size in most for axes in free[size] or [()]]


@dataclass(frozen=True)
class Longer:
    """A case: `kept` of the size `long` is there, other sizes are as in `sizes`; `why` not the whole, if not.

    `axes`: the lengths of the axes that are long alone, by input and dimension. `inputs`: those of the case where
    `get_inputs` was called for them.
    """

    long: int
    kept: int
    sizes: Sizes
    why: str = ""
    axes: Lengths = field(default_factory=dict)
    inputs: Values | None = None


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Inputs at full size, the sizes that they were `shrunk` to, and how many elements a longer case may have.

    `other_columns`: whether the contract lets columns change, as input sets of other shapes say.
    """

    inputs: Sequence[Any]
    shrunk: Sizes
    other_columns: bool
    elements: int
    refusal: Refusal

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The inputs that have sizes."""
        return [value for value in self.inputs if isinstance(value, torch.Tensor)]

    def beyond(self, elements: int) -> Longer:
        """All sizes halved only until the inputs have at most twice `elements`; `kept` is 0 if that is refused."""
        sizes = halved(self.tensors, self.shrunk, 2 * elements)
        why = self.refusal(resize(self.inputs, sizes))
        return Longer(0, 0 if why else count_elements(self.tensors, sizes), sizes, why)

    def longest(self, long: LongSize) -> Longer:
        """The way that keeps the most of a size, the first of equals; `kept` is 0 where none can be afforded."""
        best = Longer(long.size, 0, {}, "")
        for others in self._ways(set() if long.axes else {long.size}):
            found = self._climb(long, others)
            best = found if found.kept > best.kept or not best.why else best
            if best.kept == long.size:
                break
        return best

    def _climb(self, long: LongSize, others: Sizes) -> Longer:
        """Double the size up from what it was shrunk to, until it is whole or more is refused."""
        rungs, size = [], long.size
        while size > self.shrunk[long.size]:
            rungs.append(size)
            size = half_of(size)
        best = Longer(long.size, 0, {}, "")
        for rung in reversed(rungs):
            wanted = others if long.axes else {**others, long.size: rung}
            sizes = {old: new for old, new in wanted.items() if old != new}
            axes = dict.fromkeys(long.axes, rung)
            if why := self._refused(sizes, axes):
                return replace(best, why=why)
            best = Longer(long.size, rung, sizes, axes=axes)
        return best

    def _refused(self, sizes: Sizes, axes: Lengths) -> str:
        shapes = [resized(index, value, sizes, axes) for index, value in enumerate(self.inputs)]
        if (count := sum(math.prod(shape) for shape in shapes if shape)) > self.elements:
            return f"{count:,} elements take the emulated GPU too long"
        return self.refusal(resize(self.inputs, sizes, axes))

    def _ways(self, kept: set[int]) -> Iterator[Sizes]:
        """What becomes of the sizes that are not kept: columns that are rows of another input give way first.

        A kernel may take a path of its own for columns that are divided, so that what is long says nothing of it.
        """
        tensors = self.tensors
        columns = {value.shape[-1] for value in tensors if value.ndim}
        rows = {size for value in tensors for size in value.shape[:-1]}
        outer = rows - columns - kept
        shrunk = {size: self.shrunk.get(size, size) for size in (columns | outer) - kept}
        few_rows = {**shrunk, **{size: min(size, LEAST_ROWS) for size in outer}}
        if self.other_columns:
            if both := columns & rows - kept:
                yield {**few_rows, **narrow(both)}
            yield {**few_rows, **narrow(columns - kept)}
        yield few_rows
        yield shrunk


def narrow(columns: set[int]) -> Sizes:
    """Columns divided by one power of two, so that a half of another stays one; none if they have none in common."""
    common = math.gcd(*columns) if columns else 1
    factor = 1
    while common % (2 * factor) == 0 and max(columns) // (2 * factor) >= NARROW:
        factor *= 2
    return {size: size // factor for size in columns}

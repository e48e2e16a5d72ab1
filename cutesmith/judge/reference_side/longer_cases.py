"""Cases for the emulated GPU that keep one long size of the inputs whole, where all of them are more than it affords.

`cases.smaller_sizes` takes rows away until a call is quick, and what goes wrong beyond the first rows is never seen
there: an index that wraps, a grid that ends early, a loop over the first tiles. Here each size that was shrunk stays as
it is and the others give way, as far as the reference takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cutesmith.judge.reference_side.cases import Values, count_elements, half_of, halved, resize

MOST_CASES = 4  # the sizes that were shrunk the most
NARROW = 32  # columns: a warp's lanes, and enough for vectors of 16 bytes
LEAST_ROWS = 2  # that a second one is there

Sizes = dict[int, int]
Refusal = Callable[[Values], str]  # why these inputs cannot be used; empty when they can


def long_sizes(shrunk: Sizes) -> list[int]:
    """The sizes that deserve a longer case: those that were shrunk the most."""
    return sorted(shrunk, key=lambda size: (shrunk[size] / size, -size))[:MOST_CASES]


@dataclass(frozen=True)
class Longer:
    """A case: `kept` of the size `long` is there, other sizes are as in `sizes`; `why` not the whole, if not."""

    long: int
    kept: int
    sizes: Sizes
    why: str = ""


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

    def longest(self, long: int) -> Longer:
        """The way that keeps the most of a size, the first of equals; `kept` is 0 where none can be afforded."""
        best = Longer(long, 0, {}, "")
        for others in self._ways(long):
            found = self._climb(long, others)
            best = found if found.kept > best.kept or not best.why else best
            if best.kept == long:
                break
        return best

    def _climb(self, long: int, others: Sizes) -> Longer:
        """Double the size up from what it was shrunk to, until it is whole or more is refused."""
        rungs, size = [], long
        while size > self.shrunk[long]:
            rungs.append(size)
            size = half_of(size)
        best = Longer(long, 0, {}, "")
        for rung in reversed(rungs):
            sizes = {old: new for old, new in {**others, long: rung}.items() if old != new}
            if why := self._refused(sizes):
                return Longer(long, best.kept, best.sizes, why)
            best = Longer(long, rung, sizes)
        return best

    def _refused(self, sizes: Sizes) -> str:
        if (count := count_elements(self.tensors, sizes)) > self.elements:
            return f"{count:,} elements take the emulated GPU too long"
        return self.refusal(resize(self.inputs, sizes))

    def _ways(self, long: int) -> Iterator[Sizes]:
        """What becomes of the other sizes: columns that are rows of another input give way before those that are not.

        A kernel may take a path of its own for columns that are divided, so that what is long says nothing of it.
        """
        tensors = self.tensors
        columns = {value.shape[-1] for value in tensors if value.ndim}
        rows = {size for value in tensors for size in value.shape[:-1]}
        outer = rows - columns - {long}
        shrunk = {size: self.shrunk.get(size, size) for size in (columns | outer) - {long}}
        few_rows = {**shrunk, **{size: min(size, LEAST_ROWS) for size in outer}}
        if self.other_columns:
            if both := columns & rows - {long}:
                yield {**few_rows, **narrow(both)}
            yield {**few_rows, **narrow(columns - {long})}
        yield few_rows
        yield shrunk


def narrow(columns: set[int]) -> Sizes:
    """Columns divided by one power of two, so that a half of another stays one; none if they have none in common."""
    common = math.gcd(*columns) if columns else 1
    factor = 1
    while common % (2 * factor) == 0 and max(columns) // (2 * factor) >= NARROW:
        factor *= 2
    return {size: size // factor for size in columns}

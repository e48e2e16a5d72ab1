"""Attributes of nodes that see windows of an image, or positions of a transposed convolution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from cutesmith.patterns.graph.attributes import Attributes
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.size_laws import SizeLaw


@dataclass(frozen=True)
class Windows(Attributes):
    """Windows over the trailing dimensions of (…, channels, *sizes): (…, channels * taps, positions), both row-major.

    At position o, tap t reads element (o * step + t * dilation - start) / divisor of each dimension, and 0 where there
    is none. A convolution has the divisor 1; a transposed one has step 1, a dilation below 0, its stride as divisor,
    and `more` positions at the end. `taps_first`: (…, taps * channels, positions), the order of weights that lie
    in memory with their channels side by side.
    """

    taps: Shape  # of the weights, which may have other sizes in another call
    start: tuple[int, ...]
    step: tuple[int, ...]
    dilation: tuple[int, ...]
    divisor: tuple[int, ...]
    more: tuple[int, ...]
    taps_first: bool = False

    @property
    def rank(self) -> int:
        """How many dimensions the windows have."""
        return len(self.taps)

    @property
    def is_spread(self) -> bool:
        """Whether there are places without an element between the elements, as a transposed convolution strides."""
        return any(divisor != 1 for divisor in self.divisor)

    @property
    def is_transposed(self) -> bool:
        """Whether they are those of a transposed convolution: PyTorch multiplies nothing where there is no element."""
        return min(self.dilation) < 0

    @property
    def are_points(self) -> bool:
        """Whether each window is the element at its place."""
        dims = zip(self.taps, self.start, self.step, self.divisor, self.more, strict=True)
        return all(dim == (1, 0, 1, 1, 0) for dim in dims)

    @property
    def reaches(self) -> tuple[int, ...]:
        """Elements from a window's first to its last, along each dimension."""
        return tuple(dilation * (taps - 1) for dilation, taps in zip(self.dilation, self.taps, strict=True))

    @property
    def corners(self) -> tuple[tuple[int, int], ...]:
        """Of each dimension: the lowest place that the first window sees, and that of the last one from the end on."""
        dims = zip(self.start, self.reaches, self.more, strict=True)
        return tuple((min(0, reach) - start, start - max(0, reach) + more) for start, reach, more in dims)

    def under_a_dimension(self) -> Windows:
        """The same over an image that has one more dimension, of size 1, before the others."""
        one, none = (1,), (0,)
        taps, step, dilation = one + self.taps, one + self.step, one + self.dilation
        start, divisor, more = none + self.start, one + self.divisor, none + self.more
        return Windows(taps, start, step, dilation, divisor, more, self.taps_first)

    def law(self, dim: int) -> SizeLaw:
        """The number of positions along a dimension, by its size."""
        start, dilation, reach = self.start[dim], self.dilation[dim], self.dilation[dim] * (self.taps[dim] - 1)
        if dilation > 0:
            return SizeLaw.steps(2 * start - reach - 1, self.step[dim])
        divisor = self.divisor[dim]
        return SizeLaw(2 * start - reach + self.more[dim] + 1 - divisor, Fraction(divisor), (), 1)


@dataclass(frozen=True)
class Phase:
    """Of positions along a dimension that lie a stride apart: the group and the phase in it, and the first place."""

    group: int
    at: int
    first: int


@dataclass(frozen=True)
class Interleaving(Attributes):
    """Whose values the positions of a transposed convolution (…, outputs, *positions) have.

    The inputs are (…, *phases, outputs, *places), one for each choice of a group along each dimension, row-major.
    `phases` has for each dimension, and for each r below its stride, where positions r, r + stride, … are: in
    neighbouring places of a phase; None: they are 0.
    """

    phases: tuple[tuple[Phase | None, ...], ...]

    @property
    def rank(self) -> int:
        """How many dimensions have positions."""
        return len(self.phases)

    @property
    def strides(self) -> Shape:
        """Positions of a block that has one place of each phase."""
        return tuple(map(len, self.phases))

    def sources(self) -> list[tuple[int, tuple[Phase, ...]] | None]:
        """Of each position of a block, row-major: its input, and its phase along each dimension; None for 0."""
        found = list[tuple[int, tuple[Phase, ...]] | None]()
        for place in itertools.product(*self.phases):
            phases = tuple(phase for phase in place if phase)
            is_met = len(phases) == self.rank
            found.append((self.number([phase.group for phase in phases]), phases) if is_met else None)
        return found

    def number(self, groups: Sequence[int]) -> int:
        """Which input a choice of a group along each dimension is."""
        found = 0
        for group, along in zip(groups, self.phases, strict=True):
            found = found * (1 + max(phase.group for phase in along if phase)) + group
        return found


@dataclass(frozen=True)
class DepthToSpace(Attributes):
    """Where the elements of (…, outputs * phases, places) are among the positions of (…, outputs, *positions).

    Along each dimension phase p of place q is position q * stride + p * apart + first, of as many phases as the
    stride; all of them make each position once, and some lie outside.
    """

    places: Shape
    strides: Shape
    apart: Shape
    first: Shape

    @property
    def rank(self) -> int:
        """How many dimensions have positions."""
        return len(self.places)

    @property
    def phases(self) -> int:
        """Elements of each output that a place has."""
        return math.prod(self.strides)

"""Windows over the trailing dimensions of an image: where each begins, what it sees, and what becomes of that."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from cutesmith.patterns.graph.attributes import Attributes
from cutesmith.patterns.graph.size_laws import SizeLaw


@dataclass(frozen=True)
class Span:
    """Windows along one dimension: that at position o sees `taps` elements `dilation` apart, from o * step - start on.

    `start` is also how far windows reach beyond the end. `partial`: a last window may end further outside (ceil_mode).
    """

    taps: int
    step: int
    start: int = 0
    dilation: int = 1
    partial: bool = False

    @property
    def reach(self) -> int:
        """Elements from a window's first to its last."""
        return self.dilation * (self.taps - 1)

    @property
    def leaves_image(self) -> bool:
        """Whether a window may see places where no element is."""
        return self.start > 0 or self.partial

    @property
    def may_see_nothing(self) -> bool:
        """Whether all of a window's taps may lie outside the image: those before it, and the others behind."""
        return self.start > 0 and self.dilation > 1

    @property
    def law(self) -> SizeLaw:
        """The number of positions, by the dimension's size."""
        free = 2 * self.start - self.reach - 1
        if self.partial:  # a window more for what is left, if it begins before the end
            free = min(free + self.step - 1, self.start - 1)
        return SizeLaw.steps(free, self.step)


@dataclass(frozen=True)
class Share:
    """As many windows as `count`, each of one dimension's equal share, rounded outwards: they may overlap by one."""

    count: int

    @property
    def law(self) -> SizeLaw:
        """The number of positions."""
        return SizeLaw.constant(self.count)


@dataclass(frozen=True)
class Samples:
    """Places between the elements of one dimension, each seen through its nearest 1, 2 or 4 elements; ends repeat.

    `aligned`: the first and last position are the first and last element; else positions and elements are the middles
    of equal parts. `scale` is how many positions an element has, 0 where the sizes say it; there are `count` positions,
    0: the size times the scale. The nearest element is that below a position's begin, or of its middle (`centred`).
    """

    taps: int
    aligned: bool = False
    count: int = 0
    scale: float = 0.0
    centred: bool = False

    @property
    def law(self) -> SizeLaw | None:
        """The number of positions, by the dimension's size; None where a broken scale says it."""
        if self.count or self.scale != int(self.scale):
            return SizeLaw.constant(self.count) if self.count else None
        return SizeLaw(0, Fraction(int(self.scale)), (), 1)

    def positions(self, size: str) -> str:
        """Code of the number of positions, of the code of the dimension's size."""
        return f"int({size} * {self.scale!r})" if self.law is None else self.law.size_code(size)

    def ratio(self, size: str, count: str) -> str:
        """Code of the elements from one position to the next."""
        if self.aligned:
            return f"({size} - 1) / max({count} - 1, 1)"
        return f"1 / {self.scale!r}" if self.scale else f"{size} / {count}"


@dataclass(frozen=True)
class Pooling(Attributes):
    """What becomes of each window: max, argmax (its place among the image's trailing dimensions), mean, or sample.

    Of several largest elements argmax is the first, and NaN, the last one, counts as larger; of none it is the place of
    the first tap that does not lie before the image. A mean is divided by `divisor`, or by the number of elements, with
    those of the padding where it `counts_padding`.
    """

    operation: str
    spans: tuple[Span | Share | Samples, ...]
    counts_padding: bool = False
    divisor: int = 0

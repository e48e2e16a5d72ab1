"""Windows over the trailing dimensions of an image: where each begins, what it sees, and what becomes of that."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.patterns.graph.nodes import Attributes


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

    def positions(self, size: str) -> str:
        """Code of the number of positions, of the code of the dimension's size."""
        free = 2 * self.start - self.reach - 1
        if not self.partial:
            return f"({size} + {free}) // {self.step} + 1"
        most = f"({size} + {self.start - 1}) // {self.step} + 1"  # a window begins before the end
        return f"min(({size} + {free + self.step - 1}) // {self.step} + 1, {most})"


@dataclass(frozen=True)
class Share:
    """As many windows as `count`, each of one dimension's equal share, rounded outwards: they may overlap by one."""

    count: int

    def positions(self, size: str) -> str:
        """Code of the number of positions."""
        return str(self.count)


@dataclass(frozen=True)
class Pooling(Attributes):
    """What becomes of each window: max, argmax (its place among the image's trailing dimensions), mean.

    Of several largest elements argmax is the first, and NaN, the last one, counts as larger. A mean is divided by
    `divisor`, or by the number of elements, with those of the padding where it `counts_padding`.
    """

    operation: str
    spans: tuple[Span | Share, ...]
    counts_padding: bool = False
    divisor: int = 0

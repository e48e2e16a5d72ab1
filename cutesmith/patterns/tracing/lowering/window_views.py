"""What the gradients of weights share: which windows there are, and zeros outside of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.tracing.lowering.dispatch import Lowering


@dataclass(frozen=True)
class Slides:
    """Those of the convolution that is not transposed: of `groups` of channels, and along each dimension."""

    taps: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int

    @property
    def slides(self) -> tuple[bool, ...]:
        """Along which dimensions neighbouring windows begin at neighbouring elements."""
        return tuple(step == 1 for step in self.stride)

    @property
    def reaches(self) -> Shape:
        """Elements from a window's first to its last."""
        return tuple(apart * (taps - 1) for apart, taps in zip(self.dilation, self.taps, strict=True))


def inside(low: Lowering, value: Node, conditions: Sequence[Node]) -> Node:
    """The value, and 0 where one of the conditions does not hold."""
    if not conditions:
        return low.build.materialise(value)
    held = reduce(lambda one, other: low.build("logical_and", one, other), conditions)
    return low.build("where", held, value, low.build.constant(0, compute_dtype(value.dtype)), dtype=value.dtype)

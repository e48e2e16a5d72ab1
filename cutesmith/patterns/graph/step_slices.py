"""Slices of steps: what neighbouring ones are slices of, and the same slice of what each step has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.recurrences import Steps, Unlike, along, any_of, same_place
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice


@dataclass(frozen=True)
class StepSlices:
    """Slices of as many steps as `length`, of which the first or last may lie outside where it `is_lenient`."""

    build: GraphBuilder
    length: int
    is_lenient: bool

    def neighbouring(self, steps: Steps, at: int) -> Node | None:
        """What neighbouring slices are slices of."""
        known = [(number, step) for number, step in enumerate(steps) if step is not None]
        slices = [(number, found) for number, step in known if (found := self._slice_of(step)) is not None]
        if len(slices) < max(2, len(known)):
            return None
        (number, (x, dim, start)), (_, (_, _, later)) = slices[0], slices[1]
        apart = later - start
        if apart < 1 or any(each != (x, dim, start + (n - number) * apart) for n, each in slices):
            return None
        shape = any_of(steps).shape
        width = math.prod(shape) * x.shape[dim] // max(1, math.prod(x.shape))
        if width != 1 and width != apart:
            return None
        return self._whole(x, dim, (start - number * apart, apart, width), at, shape)

    def alike(self, steps: Steps, at: int, of: Callable[[Steps, int], Node]) -> Node | None:
        """The same slice of what each step has, as one gate of several that a product gives."""
        slices = [None if step is None else self.build.slices.get(id(step)) for step in steps]
        known = [each for each in slices if each]
        if len(known) < len([step for step in steps if step]) or len({(dim, first) for _, dim, first in known}) > 1:
            return None
        source, dim, first = known[0]
        whole = of(tuple(each[0] if each else None for each in slices), at)
        along_whole = dim + (dim >= at)
        if whole.shape[along_whole] != source.shape[dim]:
            return None
        sliced = push_slice(self.build, whole, along_whole, first, any_of(steps).shape[dim])
        return self.build.slice_of(sliced, whole, along_whole, first)

    def _slice_of(self, step: Node) -> tuple[Node, int, int] | None:
        """The slice that a step is, or is a reshape of: the value, the dimension, the first element."""
        ways = (step, *self.build.reshaped.get(id(step), ()))
        return next((self.build.slices[id(each)] for each in ways if id(each) in self.build.slices), None)

    def _whole(self, x: Node, dim: int, span: tuple[int, int, int], at: int, shape: Shape) -> Node | None:
        """The slices of x side by side: `width` elements each, `apart`, of which the first may lie outside."""
        (start, apart, width), build = span, self.build
        count = self.length * width
        is_inside = start >= 0 and start + (self.length - 1) * apart + width <= x.shape[dim]
        if not (is_inside or self.is_lenient):
            raise Unlike
        if not is_inside:
            sizes = along(x.shape[:dim] + x.shape[dim + 1 :], dim, count)
            places = [build.iota(sizes, each) for each in range(len(sizes))]
            places[dim] = build("add", build("mul", places[dim], apart // width), start)
            whole = take(build, x, places, sizes)
        else:
            whole = push_slice(build, x, dim, start, count, apart // width)
        inner = (*x.shape[:dim], *([width] if width > 1 else []), *x.shape[dim + 1 :])
        to = same_place(shape, at, inner)
        if to is None:
            return None
        whole = build.reshape(whole, along(inner, dim, self.length))
        others = [each for each in range(len(inner) + 1) if each != dim]
        turned = push_permute(build, whole, [*others[:to], dim, *others[to:]])
        return build.reshape(turned, along(shape, at, self.length))

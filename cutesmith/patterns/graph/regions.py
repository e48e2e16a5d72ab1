"""The part of a storage that a view shows: found from strides, replaced, and read.

A storage is a value whose dimensions are in the order of memory. A view takes a `Span` of each of them, if need be
once they are split where the view's strides say so, or are taken as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.rerolling import FEWEST, rerolled
from cutesmith.patterns.graph.shapes import Shape, dense_strides
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice


@dataclass(frozen=True)
class Span:
    """`length` places of a dimension, `step` apart; `dim` is the view's dimension for them, None where it has none."""

    start: int
    step: int = 1
    length: int = 1
    dim: int | None = None

    @property
    def end(self) -> int:
        """The place after the last one."""
        return self.start + self.step * (self.length - 1) + 1

    def apart(self, other: Span) -> bool:
        """Whether no place is in both."""
        between = self.step == other.step and (self.start - other.start) % self.step != 0
        return between or self.end <= other.start or other.end <= self.start


@dataclass(frozen=True)
class Region:
    """The elements of a view: a span of each dimension of its storage, which has `sizes` for that."""

    sizes: Shape
    spans: tuple[Span, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it has every element of the storage."""
        return all(span.length == size for span, size in zip(self.spans, self.sizes, strict=True))

    @property
    def order(self) -> list[int]:
        """The view's dimensions in the order of memory, without those of size 1."""
        return [span.dim for span in self.spans if span.dim is not None]

    def apart(self, other: Region) -> bool:
        """Whether no element is in both, as far as that is seen dimension by dimension."""
        return self.sizes == other.sizes and any(map(Span.apart, self.spans, other.spans))


def region_of(sizes: Shape, shape: Shape, strides: Shape, offset: int) -> Region | None:
    """The region of a view; None where its elements are not a product of spans, or share places."""
    for seen in (sizes, _split(sizes, shape, strides), *_merged(sizes)):
        spans = _spans(seen, shape, strides, offset)
        if spans is not None:
            return Region(seen, spans)
    return None


def _merged(sizes: Shape) -> Iterator[Shape]:
    """The dimensions with a run of them as one: a diagonal is evenly spaced there."""
    for count in range(2, len(sizes) + 1):
        for first in range(len(sizes) + 1 - count):
            yield (*sizes[:first], math.prod(sizes[first : first + count]), *sizes[first + count :])


def _split(sizes: Shape, shape: Shape, strides: Shape) -> Shape:
    """The dimensions, each split where a stride of the view lies between its own and the next one's."""
    parts: list[int] = []
    for size, inner in zip(sizes, dense_strides(sizes), strict=True):
        between = {stride for length, stride in zip(shape, strides, strict=True) if length > 1}
        ends = [size * inner]
        for stride in sorted(between, reverse=True):
            if inner < stride < ends[-1] and stride % inner == 0 == ends[-1] % stride:
                ends.append(stride)
        parts += [outer // stride for outer, stride in zip(ends, [*ends[1:], inner], strict=True)]
    return tuple(parts)


def _spans(sizes: Shape, shape: Shape, strides: Shape, offset: int) -> tuple[Span, ...] | None:
    spans, steps = [], dense_strides(sizes)
    for inner in steps:
        start, offset = divmod(offset, inner)
        spans.append(Span(start))
    for dim, (length, stride) in enumerate(zip(shape, strides, strict=True)):
        if length == 1:
            continue
        at = next((at for at, inner in enumerate(steps) if inner <= stride), None)
        if at is None or spans[at].dim is not None or stride % steps[at]:
            return None
        spans[at] = span = Span(spans[at].start, stride // steps[at], length, dim)
        if span.end > sizes[at]:
            return None
    return tuple(spans)


def replaced(build: GraphBuilder, whole: Node, region: Region, value: Node, dtype: str) -> Node:
    """The storage `whole`, of `dtype`, with the view's `value` in its region; of the shape of `whole`.

    What `value` is made of may have been read from the region: at its own place that is what `whole` is.
    """
    if region.is_whole:
        lying = push_permute(build, value, [*region.order, *_ones(value.shape)])
        return build.reshape(lying, whole.shape)
    places: dict[int, Node] = {}
    inside: Node | None = None
    for at, span in enumerate(region.spans):
        coordinate = build.iota(region.sizes, at)
        for test in _tests(build, coordinate, span, region.sizes[at]):
            inside = test if inside is None else build("logical_and", inside, test)
        if span.dim is not None:
            moved = build("sub", coordinate, span.start) if span.start else coordinate
            places[span.dim] = build("floor_div", moved, span.step) if span.step > 1 else moved
    assert inside is not None
    kind, zero = compute_dtype(dtype), build.constant(0, "int64")
    given = [places.get(dim, zero) for dim in range(len(value.shape))]
    old, before = build.reshape(whole, region.sizes), read(build, whole, region, value.shape)
    new = take(build, build.operand(value, kind), given, region.sizes, known=(before, old))
    old = build.operand(old, kind)
    return build.reshape(build.retype(build("where", inside, new, old, dtype=dtype), dtype), whole.shape)


def side_by_side(build: GraphBuilder, written: Sequence[tuple[Region, Node]], dtype: str) -> Node | None:
    """The storage of `dtype` that equal steps fill, each a part of one dimension; None for other writes."""
    if len(written) < FEWEST:
        return None
    sizes = written[0][0].sizes
    parts = {at for region, _ in written for at, span in enumerate(region.spans) if span.length < sizes[at]}
    if len(parts) > 1 or any(region.sizes != sizes for region, _ in written):
        return None
    (dim,) = parts
    ordered = sorted(written, key=lambda each: each[0].spans[dim].start)
    length, step = ordered[0][0].spans[dim].length, ordered[0][0].spans[dim].step
    starts = [region.spans[dim].start for region, _ in ordered]
    if starts != list(range(0, sizes[dim], length)) or step != 1:
        return None
    shape = (*sizes[:dim], length, *sizes[dim + 1 :])
    lying = [push_permute(build, value, [*region.order, *_ones(value.shape)]) for region, value in ordered]
    pieces = [build.reshape(build.retype(each, dtype), shape) for each in lying]
    return rerolled(build, pieces, dim, sizes)


def _tests(build: GraphBuilder, coordinate: Node, span: Span, size: int) -> Iterator[Node]:
    """What holds of the places in a span."""
    if span.start > 0:
        yield build("ge", coordinate, span.start)
    if span.step > 1:
        yield build("eq", build("remainder", build("sub", coordinate, span.start), span.step), 0)
    if span.end + span.step <= size:
        yield build("lt", coordinate, span.end)


def read(build: GraphBuilder, whole: Node, region: Region, shape: Shape) -> Node:
    """The value of a view of the storage `whole`."""
    node = build.reshape(whole, region.sizes)
    for at, span in enumerate(region.spans):
        node = push_slice(build, node, at, span.start, span.length, span.step)
    node = build.drop_dims(node, [at for at, span in enumerate(region.spans) if span.dim is None])
    long_dims = sorted(region.order)
    node = push_permute(build, node, [region.order.index(dim) for dim in long_dims])
    return build.reshape(node, shape)


def _ones(shape: Shape) -> list[int]:
    return [dim for dim, size in enumerate(shape) if size == 1]

"""Lowerings of what moves elements: cat, stack, pad, flip, roll, repeat, index_select, embedding, advanced indexing.

Each is a `take` at coordinates that are arithmetic on the result's, so that it is part of an elementwise kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.rerolling import rerolled
from cutesmith.patterns.graph.takes import joined_along, take, unflipped
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, lowers
from cutesmith.patterns.tracing.lowering.scans import doubled_scan, exclusive_scan, flipped_scan

Along = Callable[[Node, int], Node]
"""The coordinate along a dimension of a source, by that of the result and the dimension."""


def _moved(low: Lowering, x: Node, along: Along, dims: Sequence[int] | None = None) -> Node:
    """x at other coordinates along some dimensions (all of them), in the shape of the result."""
    shape = tuple(low.shapes[0])
    coordinates = [low.build.iota(shape, dim) for dim in range(len(shape))]
    changed = range(len(shape)) if dims is None else [dim % len(shape) for dim in dims if shape]
    places = [along(each, dim) if dim in changed else each for dim, each in enumerate(coordinates)]
    return take(low.build, x, places, shape)


# Side by side


def _joined(low: Lowering, tensors: Sequence[Node], dim: int) -> Node:
    shape = tuple(low.shapes[0])
    pieces = [low.operand(each) for each in tensors if each.shape != (0,) or len(shape) == 1]
    pieces = [each for each in pieces if each.shape[dim % len(shape)]]
    if not pieces:
        return low.build.expand(low.build.constant(0, low.kind), shape)
    return joined_along(low.build, pieces, dim % len(shape), low.dtype)


@lowers("cat")
def _cat(low: Lowering, tensors: Sequence[Node], dim: int = 0) -> Node:
    shape = tuple(low.shapes[0])
    whole = exclusive_scan(low, tensors, dim) or doubled_scan(low, tensors, dim)
    whole = whole or rerolled(low.build, tensors, dim % len(shape), shape)
    return _joined(low, tensors, dim) if whole is None else whole


@lowers("stack")
def _stack(low: Lowering, tensors: Sequence[Node], dim: int = 0) -> Node:
    dim = dim % len(low.shapes[0])
    if (whole := rerolled(low.build, tensors, dim, tuple(low.shapes[0]))) is not None:
        return whole
    unsqueezed = [low.build.reshape(each, (*each.shape[:dim], 1, *each.shape[dim:])) for each in tensors]
    return _joined(low, unsqueezed, dim)


# Around


@lowers("constant_pad_nd")
def _pad(low: Lowering, x: Node, pad: Sequence[int], value: Operand = 0) -> Node:
    build, shape, rank = low.build, tuple(low.shapes[0]), len(low.shapes[0])
    before = {rank - 1 - at: pad[2 * at] for at in range(len(pad) // 2)}
    inside: Node | None = None
    for dim, first in before.items():
        coordinate = build.iota(shape, dim)
        tests = [build("ge", coordinate, first)] if first > 0 else []
        if shape[dim] > first + x.shape[dim]:
            tests.append(build("lt", coordinate, first + x.shape[dim]))
        for test in tests:
            inside = test if inside is None else build("logical_and", inside, test)
    value_node = low.operand(value)
    taken = _moved(low, low.operand(x), lambda at, dim: build("sub", at, before[dim]), list(before))
    return taken if inside is None else build("where", inside, taken, value_node, dtype=low.dtype)


def _padding(low: Lowering, x: Node, pad: Sequence[int], place: Callable[[Node, int], Node]) -> Node:
    rank = len(low.shapes[0])
    before = {rank - 1 - at: pad[2 * at] for at in range(len(pad) // 2)}
    along: Along = lambda at, dim: place(low.build("sub", at, before[dim]), x.shape[dim])
    return _moved(low, low.operand(x), along, list(before))


@lowers("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def _reflected(low: Lowering, x: Node, pad: Sequence[int]) -> Node:
    """Mirrored at the first and the last element, which are not repeated."""
    build = low.build

    def place(at: Node, size: int) -> Node:
        inner = build("abs", at)
        return build("where", build("ge", inner, size), build("sub", 2 * (size - 1), inner), inner)

    return _padding(low, x, pad, place)


@lowers("replication_pad1d", "replication_pad2d", "replication_pad3d")
def _replicated(low: Lowering, x: Node, pad: Sequence[int]) -> Node:
    build = low.build
    return _padding(low, x, pad, lambda at, size: build("minimum", build("maximum", at, 0), size - 1))


# Round about


@lowers("flip")
def flip(low: Lowering, x: Node, dims: Sequence[int]) -> Node:
    """x from the last element to the first along these dimensions, in the shape of the result."""
    known = flipped_scan(low, x, dims) or unflipped(x, dims)
    if known is not None:
        return known
    return _moved(low, x, lambda at, dim: low.build("sub", x.shape[dim] - 1, at), dims)


@lowers("roll")
def _roll(low: Lowering, x: Node, shifts: Sequence[int], dims: Sequence[int] = ()) -> Node:
    if dims:
        return _rolled(low, x, shifts, dims)
    flat = low.build.reshape(x, (math.prod(x.shape),))
    inner = Lowering(low.build, low.scalars, [flat.shape], low.dtypes)
    return low.build.reshape(_rolled(inner, flat, shifts, [0]), tuple(low.shapes[0]))


def _rolled(low: Lowering, x: Node, shifts: Sequence[int], dims: Sequence[int]) -> Node:
    """The element that lies `shift` before, around the end: the shift may be longer than the dimension of a call."""
    build = low.build
    for shift, dim in zip(shifts, dims, strict=True):
        size = max(1, x.shape[dim])

        def along(at: Node, _: int, size: int = size, shift: int = shift) -> Node:
            return build("remainder", build("sub", at, shift), size)

        x = _moved(low, x, along, [dim])
    return x


@lowers("repeat")
def _repeat(low: Lowering, x: Node, repeats: Sequence[int]) -> Node:
    """Each coordinate modulo the size that is repeated."""
    build, shape = low.build, tuple(low.shapes[0])
    whole = build.reshape(x, (1,) * (len(repeats) - len(x.shape)) + x.shape)
    if any(size == 0 for size in shape):
        return build.expand(low.operand(0), shape)

    def along(at: Node, dim: int) -> Node:
        return at if repeats[dim] == 1 else build("remainder", at, whole.shape[dim])

    return _moved(low, whole, along)


# By index


def _beside(low: Lowering, index: Node, dim: int, rank: int) -> Node:
    """An index whose first dimension is `dim` of the result's, broadcast over the others."""
    after = rank - dim - len(index.shape)
    return low.build.reshape(index, (*index.shape, *(1,) * after))


@lowers("index_select")
def _index_select(low: Lowering, x: Node, dim: int, index: Node) -> Node:
    rank = len(low.shapes[0])
    if not rank:
        return x
    dim = dim % rank
    index = low.build.reshape(index, (low.shapes[0][dim],))
    place = _beside(low, low.build.operand(index, "int64"), dim, rank)
    return _moved(low, x, lambda *_: place, [dim])


@lowers("embedding")
def _embedding(low: Lowering, weight: Node, index: Node, *_: Any, **__: Any) -> Node:
    build, shape = low.build, tuple(low.shapes[0])
    row = build.reshape(build.operand(index, "int64"), (*index.shape, 1))
    return take(build, weight, [row, build.iota(shape, len(shape) - 1)], shape)


def first_indexed(dims: Sequence[int]) -> int:
    """Where the dimensions of index tensors begin in what they index."""
    return dims[0] if list(dims) == list(range(dims[0], dims[0] + len(dims))) else 0


@lowers("index.Tensor", "_unsafe_index.Tensor")
def _index(low: Lowering, x: Node, indices: Sequence[Node | None]) -> Node:
    """Index tensors for some dimensions; a negative index counts from the end.

    What they index is in the place of these dimensions, or in front where others lie between them.
    """
    build, shape = low.build, tuple(low.shapes[0])
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    if list(given) == [0] and given[0].dtype in ("bool", "uint8"):
        return build.node("masked", (x, given[0]), shape, x.dtype)
    if any(index.dtype in ("bool", "uint8") for index in given.values()):
        raise build.unmatched("has a result whose shape depends on values")
    first, rank = first_indexed(list(given)), len(shape) - (len(x.shape) - len(given))
    places, others = list[Node](), iter([at for at in range(len(shape)) if not first <= at < first + rank])
    for dim, size in enumerate(x.shape):
        if dim not in given:
            places.append(build.iota(shape, next(others)))
            continue
        place = build.operand(given[dim], "int64")
        place = build("where", build("lt", place, 0), build("add", place, size), place)
        aligned = build.reshape(place, (1,) * (rank - len(given[dim].shape)) + tuple(given[dim].shape))
        places.append(_beside(low, aligned, first, len(shape)))
    return take(build, x, places, shape)

"""Lowerings of `index_put`: elements written to the places of index tensors, or of a mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutesmith.patterns.graph.attributes import Iota
from cutesmith.patterns.graph.nodes import Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape, broadcast
from cutesmith.patterns.graph.views import push_permute
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers
from cutesmith.patterns.tracing.lowering.movement import first_indexed
from cutesmith.patterns.tracing.lowering.scatters import joined, replaced


@dataclass(frozen=True)
class _Places:
    """Where `index_put` writes to a tensor: `indices` from its start for some dimensions, of one common shape.

    `lines` are dimensions whose index is their own coordinate along the named one of the common shape. `first` is where
    that begins among the other dimensions of the values.
    """

    indices: dict[int, Node]
    shape: Shape
    lines: dict[int, int]
    first: int
    rank: int

    @property
    def others(self) -> list[int]:
        """What is left of the common shape."""
        return [at for at in range(len(self.shape)) if at not in self.lines.values()]

    @property
    def rest(self) -> list[int]:
        """Dimensions without an index."""
        return [dim for dim in range(self.rank) if dim not in (*self.lines, *self.indices)]

    def axis(self, dim: int) -> int:
        """Which dimension of the values belongs to one of the tensor that is not chosen by an index."""
        if dim in self.lines:
            return self.first + self.lines[dim]
        at = self.rest.index(dim)
        return at if at < self.first else at + len(self.shape)


@lowers("index_put", "_unsafe_index_put")
def _index_put(
    low: Lowering, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool = False, *_: Any
) -> Node:
    """Index tensors for some dimensions; a negative index counts from the end."""
    build, given = low.build, {dim: index for dim, index in enumerate(indices) if index is not None}
    if any(index.dtype in ("bool", "uint8") for index in given.values()):
        return _masked(low, x, indices, values, accumulate)
    shape = broadcast([index.shape for index in given.values()])
    lines = _counted(x, given, shape)
    chosen = {
        dim: build.expand(_from_the_start(low, index, x.shape[dim]), shape)
        for dim, index in given.items()
        if dim not in lines
    }
    places = _Places(chosen, shape, lines, first_indexed(list(given)), len(x.shape))
    sizes = [x.shape[dim] for dim in places.rest]
    values = build.expand(low.operand(values), (*sizes[: places.first], *shape, *sizes[places.first :]))
    put = _chosen if math.prod(shape[at] for at in places.others) == 1 else _scattered
    return put(low, x, places, values, accumulate)


def _counted(x: Node, given: dict[int, Node], shape: Shape) -> dict[int, int]:
    """Dimensions of x whose index is their own coordinate, each with one of the common shape; one index is left."""
    found = dict[int, int]()
    for dim, index in given.items():
        inner = index
        while inner.op in ("expand", "cast"):
            inner = inner.inputs[0]
        along = Iota.of(inner).dim - len(inner.shape) + len(shape) if inner.op == "iota" else -1
        if along >= 0 and along not in found.values() and shape[along] == x.shape[dim] and len(found) + 1 < len(given):
            found[dim] = along
    return found


def _from_the_start(low: Lowering, index: Node, size: int) -> Node:
    at = low.build.operand(index, "int64")
    return low.build("where", low.build("lt", at, 0), low.build("add", at, size), at)


def _chosen(low: Lowering, x: Node, places: _Places, values: Node, accumulate: bool) -> Node:
    """x with values where each line has its only index: a choice, as nothing else is written."""
    build, old, here = low.build, low.operand(x), low.build.constant(True, "bool")
    lines = sorted(places.lines)
    for dim, index in places.indices.items():
        index = push_permute(build, index, [*(places.lines[line] for line in lines), *places.others])
        index = build.reshape(index, tuple(size if at in lines else 1 for at, size in enumerate(x.shape)))
        here = build("logical_and", here, build("eq", build.iota(x.shape, dim), index))
    kept = [places.axis(dim) for dim in range(len(x.shape)) if dim not in places.indices]
    new = push_permute(build, values, [*kept, *(places.first + at for at in places.others)])
    new = build.reshape(new, tuple(1 if dim in places.indices else size for dim, size in enumerate(x.shape)))
    new = build("add", old, new, dtype=low.dtype) if accumulate else new
    return build("where", here, new, old, dtype=low.dtype)


def _scattered(low: Lowering, x: Node, places: _Places, values: Node, accumulate: bool) -> Node:
    """x with values in it: lines are its first dimensions, then one of all places that the indices choose from."""
    build, place, inside = low.build, low.build.constant(0, "int64"), low.build.constant(True, "bool")
    for dim, index in places.indices.items():
        within = build("logical_and", build("ge", index, 0), build("lt", index, x.shape[dim]))
        inside = build("logical_and", inside, within)
        place = build("add", build("mul", place, x.shape[dim]), index)
    lines, rest = list(places.lines), places.rest
    count, along = math.prod(places.shape[at] for at in places.others), len(lines)
    ahead, behind = ([x.shape[dim] for dim in dims] for dims in (lines, rest))
    place = push_permute(
        build,
        build.expand(build("where", inside, place, -1), places.shape),
        [*places.lines.values(), *places.others],
    )
    place = build.reshape(place, (*ahead, count, *[1] * len(rest)))
    order = [*map(places.axis, lines), *(places.first + at for at in places.others), *map(places.axis, rest)]
    values = build.reshape(push_permute(build, values, order), (*ahead, count, *behind))
    order = [*lines, *places.indices, *rest]
    turned = push_permute(build, x, order)
    chosen = math.prod(x.shape[dim] for dim in places.indices)
    flat = build.reshape(turned, (*ahead, chosen, *behind))
    put = joined(low, flat, along, place, values, "sum") if accumulate else replaced(low, flat, along, place, values)
    put = build.reshape(put, turned.shape)
    return push_permute(build, put, [order.index(dim) for dim in range(len(order))])


OWN_VALUES = (
    "writes values of their own to the places of a mask, in their order; for values at the same places: "
    "torch.where(mask, values, y); for those of another mask: "
    "y.masked_scatter(mask, values.flatten()[other.flatten().argsort(descending=True, stable=True)])"
)


def _masked(low: Lowering, x: Node, indices: Sequence[Node | None], values: Node, accumulate: bool) -> Node:
    """`x[..., mask] = values`: the same for all places of the mask, or what is computed of `other[mask]`."""
    build, first = low.build, sum(1 for index in indices if index is None)
    *before, mask = indices
    if any(index is not None for index in before) or mask is None:
        raise build.unmatched("has a mask as an index beside others")
    rest = len(x.shape) - first - len(mask.shape)
    if len(values.shape) > rest and any(node.op == "masked" for node in nodes_of((values,))):
        values = _in_place_of(low, values, mask, rest)
    elif len(values.shape) > rest and values.shape[-rest - 1] != 1:
        raise build.unmatched(OWN_VALUES)
    elif len(values.shape) > rest:  # one for all places
        lead, tail = values.shape[: len(values.shape) - rest - 1], values.shape[len(values.shape) - rest :]
        values = build.reshape(values, (*lead, *[1] * len(mask.shape), *tail))
    there = build.reshape(low.truth(mask), (*mask.shape, *[1] * rest))
    old, new = low.operand(x), low.operand(values)
    new = build("add", old, new, dtype=low.dtype) if accumulate else new
    return build("where", there, new, old, dtype=low.dtype)


def _in_place_of(low: Lowering, values: Node, mask: Node, rest: int) -> Node:
    """Values that were computed element by element of `other[mask]`, at all places of `other`."""
    build = low.build
    if values.op == "masked" and values.inputs[1] is mask:
        return values.inputs[0]
    if values.op == "expand":
        return _in_place_of(low, values.inputs[0], mask, rest)
    if len(values.shape) <= rest:
        return values
    if not values.is_pointwise:
        raise build.unmatched(OWN_VALUES)
    operands = [_in_place_of(low, operand, mask, rest) for operand in values.inputs]
    cast = values.op == "cast"
    return build.cast(operands[0], values.dtype) if cast else build(values.op, *operands, dtype=values.dtype)

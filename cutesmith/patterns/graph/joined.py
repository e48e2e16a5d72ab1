"""Reductions and slices of what is joined along a dimension as those of its parts, which nothing has to join then.

A sink of attention is such a part: one more column of the scores, which takes part in their softmax and is cut off
again. The maximum of a joined value is that of its parts' maxima, the sum that of their sums, and a slice that is one
part is that part.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from cutesmith.patterns.graph.attributes import Iota, Joined, Reduction, Sized, Stored, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_nodes
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.graph.shapes import Shape, dense_strides, is_dense
from cutesmith.patterns.graph.size_laws import SizeLaw
from cutesmith.patterns.graph.takes import whole_number
from cutesmith.patterns.graph.views import push_permute

PLACES = frozenset("iota constant sized add sub mul floor_div remainder".split())
"""What the coordinate of a take in a reshape is made of."""

COMBINED_BY = {"max": "maximum", "min": "minimum", "sum": "add"}
"""Reductions, and how those of parts become that of the whole."""


def with_parts_of_joined(graph: Graph) -> Graph:
    """The graph with reductions and slices of joined products as those of their parts; itself where there are none."""
    joined = (node for node in graph.nodes() if node.op == "take" and node.inputs[0].op == "stored")
    is_of_products = any(each.op == "contract" for node in joined for each in nodes_of((node,)))
    return _by_parts(graph) if is_of_products else graph


def with_parts_of_joined_reductions(graph: Graph) -> Graph:
    """The graph with reductions of joined reductions, as a norm over many tensors, as those of the parts."""
    return _by_parts(graph) if any(map(_joins_reductions, graph.nodes())) else graph


def _joins_reductions(node: Node) -> bool:
    if node.op not in COMBINED_BY or len(Reduction.of(node).dims) != 1:
        return False
    (whole,), dim = node.inputs, Reduction.of(node).dims[0] - len(node.shape)
    return any(_cuts(whole, dim)) and any(each.is_reduction for each in nodes_of((whole,)))


def _by_parts(graph: Graph) -> Graph:
    parts = _Parts(GraphBuilder())
    changed = with_nodes(graph, parts.instead_of)
    return replace(changed, fixed_shapes=changed.fixed_shapes or parts.fixed) if parts.made else graph


def joined_in_memory(build: GraphBuilder, node: Node, dim: int) -> Node | None:
    """A value joined of two along `dim`, from the right, as `joined`: a computed part is stored, the other is not.

    None where the value is something else, or both are computed.
    """
    cuts = sorted({end for end in _cuts(node, dim) if 0 < end < node.shape[dim]})
    spans = [(0, cuts[0]), (cuts[0], node.shape[dim] - cuts[0])] if len(cuts) == 1 else []
    parts = [_Parts(build, stores=True).part(node, dim, *span) for span in spans]
    found = [build.stored(each) for each in parts if each is not None]
    shapes = [(*node.shape[:dim], length, *node.shape[len(node.shape) + dim + 1 :]) for _, length in spans]
    if not any(each.op == "input" for each in found) or [each.shape for each in found] != shapes:
        return None
    return build.node("joined", found, node.shape, node.dtype, Joined(len(node.shape) + dim))


class _Parts:
    """What becomes of each node of a graph, whose inputs are changed already."""

    def __init__(self, build: GraphBuilder, *, stores: bool = False) -> None:
        self.build, self.stores = build, stores  # parts that are computed, and lie in memory then
        self.made: dict[int, Node] = {}
        self.fixed = False
        """Whether a slice is known to be a part for the traced sizes alone."""

    def instead_of(self, node: Node) -> Node:
        self.build.origin = node.origin
        found = self._part_of_whole(node) or self._reduced_by_parts(node)
        if found is None and any(id(child) in self.made for child in node.inputs):
            found = rebuilt(self.build, node)
        if found is None:
            return self.build.interned(node)
        found = self.build.materialise(self.build.expand(found, node.shape))
        self.made[id(found)] = found
        return found

    def _part_of_whole(self, node: Node) -> Node | None:
        """The part that a slice of a joined value is, or that all of it is; None where it is something else."""
        if node.op == "where" and (bound := _Bound.of(node.inputs[0])):
            holds = bound.holds(bound.dim, 0, node.shape[bound.dim])
            if holds is None:
                return None
            self.fixed |= holds and (not node.sizes or node.sizes[bound.dim] != bound.law)
            return node.inputs[1 if holds else 2]
        if node.op != "stored" or len(node.shape) != len(node.inputs[0].shape):
            return None
        whole, seen = node.inputs[0], Stored.of(node)
        cut = [dim for dim, size in enumerate(node.shape) if size != whole.shape[dim]]
        steps = dense_strides(whole.shape)
        if len(cut) != 1 or any(a != b for a, b, n in zip(seen.stride, steps, node.shape, strict=True) if n != 1):
            return None
        start, between = divmod(seen.offset, steps[cut[0]])
        return None if between else self.part(whole, cut[0] - len(whole.shape), start, node.shape[cut[0]])

    def _reduced_by_parts(self, node: Node) -> Node | None:
        """A reduction of a joined value as that of its parts."""
        if node.op not in COMBINED_BY or len(Reduction.of(node).dims) != 1:
            return None
        (whole,), dim = node.inputs, Reduction.of(node).dims[0] - len(node.shape)
        ends = sorted({*_cuts(whole, dim), whole.shape[dim]})
        found = [
            self._reduced_part(node, dim, start, end - start) for start, end in zip([0, *ends], ends, strict=False)
        ]
        parts = [each for each in found if each is not None]
        if len(parts) != len(ends) or len(parts) == 1:
            return None
        return functools.reduce(lambda a, b: self.build(COMBINED_BY[node.op], a, b, dtype=node.dtype), parts)

    def _reduced_part(self, node: Node, dim: int, start: int, length: int) -> Node | None:
        part = self.part(node.inputs[0], dim, start, length)
        if part is None or len(part.shape) < -dim or part.shape[dim] != length:
            return None
        if length == 1:
            return self.build.operand(part, node.dtype)
        return self.build.reduce(node.op, part, [dim], node.dtype)

    def part(self, node: Node, dim: int, start: int, length: int) -> Node | None:
        """`length` elements of a value from `start` on along `dim`, from the right; None where it needs a copy."""
        if len(node.shape) < -dim or node.shape[dim] == 1:
            return node
        shape = (*node.shape[:dim], length, *node.shape[len(node.shape) + dim + 1 :])
        if node.op == "iota":
            place = self.build.iota(shape, Iota.of(node).dim)
            is_along = Iota.of(node).dim - len(shape) == dim
            return self.build("add", place, start) if start and is_along else place
        if node.op == "take":
            return self._part_of_take(node, dim, start, shape)
        if node.op in ("stored", "reshape"):
            return self._part_of_view(node, dim, start, shape)
        if node.op == "where" and (bound := _Bound.of(node.inputs[0])):
            holds = bound.holds(dim, start, length)
            if holds is not None:
                return self.part(node.inputs[1 if holds else 2], dim, start, length)
        if not node.is_pointwise:
            return None
        parts = [each for child in node.inputs if (each := self.part(child, dim, start, length)) is not None]
        return self.build(node.op, *parts, dtype=node.dtype) if len(parts) == len(node.inputs) else None

    def _part_of_take(self, node: Node, dim: int, start: int, shape: Shape) -> Node | None:
        """What the elements are taken of, where each is in its place; else they are taken where a part is stored."""
        source = _taken_whole(self.build, node, dim, start, shape)
        if not self.stores or source is not None:
            return source
        places = [self._place(each, dim, start, shape) for each in node.inputs[1:]]
        found = [each for each in places if each is not None]
        return (
            self.build.node("take", (node.inputs[0], *found), shape, node.dtype) if len(found) == len(places) else None
        )

    def _place(self, node: Node, dim: int, start: int, shape: Shape) -> Node | None:
        """A coordinate of a take, for a part of it."""
        if _coordinate(node) == (dim, -start):
            return self.build.iota(shape, len(shape) + dim)
        return self.part(node, dim, start, shape[dim])

    def _part_of_view(self, node: Node, dim: int, start: int, shape: Shape) -> Node | None:
        """The same part of what a value is a transpose of, or the same but for ones."""
        source, dims = node.inputs[0], _dims_of_source(node)
        along = None if dims is None else dims[dim]
        if dims is None or along is None:
            return None
        part = self.part(source, along - len(source.shape), start, shape[dim])
        if part is None or part.shape != (*source.shape[:along], shape[dim], *source.shape[along + 1 :]):
            return None  # it is stretched there
        part = self.build.stored(part) if self.stores else part
        order = [at for at in dims if at is not None]
        ones = [at for at in range(len(source.shape)) if at not in order]
        return self.build.reshape(_turned(self.build, part, (*order, *ones)), shape)


def _turned(build: GraphBuilder, node: Node, dims: tuple[int, ...]) -> Node:
    """The transposed value; of what lies in memory for all sizes, also where there is one element now."""
    if node.op in IN_MEMORY and dims != tuple(range(len(dims))):
        view = View(f"{{0}}.permute({', '.join(map(str, dims))})")
        return build.view_in_memory(node, view, lambda base: base.permute(*dims)) or node
    return push_permute(build, node, dims)


def _dims_of_source(node: Node) -> list[int | None] | None:
    """For each dimension of a view which one of its source it is, None for ones; None where it is another view."""
    source = node.inputs[0].shape
    if node.op == "stored":
        places = {step: at for at, (n, step) in enumerate(zip(source, dense_strides(source), strict=True)) if n != 1}
        seen = zip(node.shape, Stored.of(node).stride, strict=True)
        dims = [places.get(step) if size != 1 else None for size, step in seen]
    else:
        long = iter([at for at, size in enumerate(source) if size != 1])
        dims = [next(long, None) if size != 1 else None for size in node.shape]
    found = {at: size for at, size in zip(dims, node.shape, strict=True) if at is not None}
    return dims if found == {at: size for at, size in enumerate(source) if size != 1} else None


def _cuts_of_view(node: Node, dim: int) -> Iterator[int]:
    dims = _dims_of_source(node)
    if dims and (along := dims[dim]) is not None:
        yield from _cuts(node.inputs[0], along - len(node.inputs[0].shape))


@dataclass(frozen=True)
class _Bound:
    """The condition that a coordinate lies below a number; `dim` is counted from the right, `law` is the number's."""

    dim: int
    end: int
    law: SizeLaw

    @classmethod
    def of(cls, condition: Node) -> _Bound | None:
        """What a condition says; None where it says something else."""
        place = _coordinate(condition.inputs[0]) if condition.op == "lt" else None
        end = whole_number(condition.inputs[1]) if place else None
        if place is None or end is None:
            return None
        dim, offset = place
        law = Sized.of(condition.inputs[1]).law if condition.inputs[1].op == "sized" else SizeLaw.constant(end)
        return cls(dim, end - offset, replace(law, offset=law.offset - offset))

    def holds(self, dim: int, start: int, length: int) -> bool | None:
        """Whether it holds for all of some coordinates along a dimension, or for none; None where they differ."""
        if dim != self.dim or start < self.end < start + length:
            return None
        return start + length <= self.end


def _coordinate(node: Node) -> tuple[int, int] | None:
    """The dimension, from the right, whose coordinate a value is, and what is added to it; None for other values."""
    if node.op == "iota":
        return Iota.of(node).dim - len(node.shape), 0
    number = whole_number(node.inputs[1]) if node.op in ("add", "sub") else None
    inner = _coordinate(node.inputs[0]) if number is not None else None
    return (inner[0], inner[1] + (number if node.op == "add" else -number)) if inner and number is not None else None


def _cuts(node: Node, dim: int) -> Iterator[int]:
    """Where the values that a pointwise one is made of are joined along a dimension."""
    seen, stack = set[int](), [node]
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.op == "where" and (bound := _Bound.of(each.inputs[0])) and bound.dim == dim:
            yield bound.end
        if each.op in ("stored", "reshape") and len(each.shape) >= -dim and each.shape[dim] != 1:
            yield from _cuts_of_view(each, dim)
        stack.extend(each.inputs if each.is_pointwise else ())


def _taken_whole(build: GraphBuilder, node: Node, dim: int, start: int, shape: Shape) -> Node | None:
    """What a part of this shape of a take reads each element of in its place, perhaps through a reshape; else None."""
    source, *places = node.inputs
    axes = [torch.arange(size) + (start if at - len(shape) == dim else 0) for at, size in enumerate(shape)]
    found = [each for place in places if (each := _by_dimension(place, axes)) is not None]
    if len(found) < len(places) or 0 in shape:
        return None
    flat = {at: torch.zeros(size, dtype=torch.int64) for at, size in enumerate(shape)}
    for each, step in zip(found, dense_strides(source.shape), strict=True):
        for at, values in each.items():
            flat[max(at, 0)] = flat[max(at, 0)] + values * step
    first = sum(int(values[0]) for values in flat.values())
    whole = tuple(size if (flat[at] != flat[at][0]).any() else 1 for at, size in enumerate(shape))
    dense = [torch.arange(n) * step for n, step in zip(whole, dense_strides(whole), strict=True)]
    in_place = all(((flat[at] - flat[at][0]) == each).all() for at, each in enumerate(dense))
    if first or not in_place or math.prod(whole) != math.prod(source.shape):
        return None
    is_whole = source.op == "stored" and Stored.of(source) == Stored.whole(source.shape)
    return build.reshape(source.inputs[0] if is_whole else source, whole)


def _by_dimension(place: Node, axes: list[torch.Tensor]) -> dict[int, torch.Tensor] | None:
    """A coordinate as a sum of functions of each dimension's coordinates, and a number at -1; None for others."""
    if place.op == "iota":
        at = Iota.of(place).dim + len(axes) - len(place.shape)
        return {at: axes[at]}
    if (number := whole_number(place)) is not None:
        return {-1: torch.tensor(number)}
    parts = [each for child in place.inputs if (each := _by_dimension(child, axes)) is not None]
    if place.op not in PLACES or len(parts) < len(place.inputs):
        return None
    combined, dims = POINTWISE[place.op].torch, {at for each in parts for at in each} - {-1}
    nothing = torch.tensor(0)
    if place.op in ("add", "sub"):
        first, second = parts
        return {at: combined(first.get(at, nothing), second.get(at, nothing)) for at in {*first, *second}}
    if len(dims) > 1:
        return _multiplied(*parts) if place.op == "mul" else None
    return {max({-1, *dims}): combined(*(sum(each.values(), nothing) for each in parts))}


def _multiplied(first: dict[int, torch.Tensor], second: dict[int, torch.Tensor]) -> dict[int, torch.Tensor] | None:
    """A sum of functions times a number; None for the product of two."""
    if first.keys() == {-1}:
        first, second = second, first
    return {at: values * second[-1] for at, values in first.items()} if second.keys() == {-1} else None


def rebuilt(build: GraphBuilder, node: Node) -> Node | None:
    """The same of other inputs, of which some are reshaped now; None where they have to be as they were."""
    if node.is_pointwise:
        return build(node.op, *node.inputs, dtype=node.dtype)
    if node.is_reduction:
        attrs = Reduction.of(node)
        return build.reduce(node.op, node.inputs[0], attrs.dims, node.dtype, attrs.correction)
    source = node.inputs[0]
    is_stored = node.op == "stored" and is_dense(node.shape, Stored.of(node).stride) and not Stored.of(node).offset
    is_whole = math.prod(node.shape) == math.prod(source.shape)  # rows of a product may lie densely, but not be all
    if node.op == "reshape" or (is_stored and is_whole and source.op != "contract"):
        return build.reshape(source, node.shape)
    return None

"""Products of float8 whose factors have a scale for each block: the kernel applies them to its sums of each block of k.

`x.float() * scales`, seen as (blocks, 128) or with repeated scales, is a factor of float32. Written so, launches make
it before a product of float32. The tensor core multiplies the float8 numbers themselves where each scale is that of a
piece of k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cutesmith.patterns.graph.attributes import Blocks, Contraction, Input, ShortSums, Stored
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import FLOATS8, HALVES
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, with_nodes
from cutesmith.patterns.graph.shapes import Shape, dense_strides, dimension_groups
from cutesmith.patterns.graph.size_laws import Place
from cutesmith.patterns.graph.views import push_permute


@dataclass(frozen=True)
class Part:
    """A part of a dimension: its size, and whether the scales change along it."""

    size: int
    varies: bool


Dims = list[list[Part]]
"""The parts that each dimension consists of, the outermost first."""


@dataclass(frozen=True)
class Scaled:
    """A factor of float32: `numbers` of float8 times `scales` in their shape, seen as `shape`, perhaps transposed.

    Without scales it is the numbers alone.
    """

    numbers: Node
    scales: Node | None
    shape: Shape
    is_transposed: bool

    @classmethod
    def of(cls, factor: Node) -> Scaled | None:
        """What a factor of a product is made of, None where that is something else."""
        rank, is_transposed = len(factor.shape), False
        if factor.op == "stored":
            turned = (*range(rank - 2), rank - 1, rank - 2)
            source = factor.inputs[0]
            steps = dense_strides(source.shape)
            if source.shape == tuple(factor.shape[dim] for dim in turned):
                is_transposed = Stored.of(factor).stride == tuple(steps[dim] for dim in turned)
            if not is_transposed and Stored.of(factor).views:
                return None
            factor = source
        shape = factor.shape
        inner = factor.inputs[0] if factor.op == "reshape" else factor
        if inner.dtype != "float32" or inner.op not in ("mul", "cast"):
            return None
        numbers = next((n for n in inner.inputs if n.dtype in FLOATS8 and n.shape == inner.shape), None)
        if numbers is None:
            return None
        others = [node for node in inner.inputs if node is not numbers]
        if any(node.dtype not in (*HALVES, "float32") for node in others):
            return None
        return cls(numbers, others[0] if others else None, shape, is_transposed)

    def built(self, build: GraphBuilder) -> Node | None:
        """The factor as numbers and scales that lie in memory, None where the scales are not those of blocks."""
        matrix = self._seen(build, self.numbers, self.shape)
        if self.scales is None or matrix is None:
            return matrix
        leaf, parts = _parts(self.scales, self.numbers.shape)
        dims = _regrouped(parts, self.numbers.shape, self.shape)
        if dims is None or not all(map(_is_repeated_in_place, dims)) or leaf.op in LEAVES - IN_MEMORY:
            return None
        *batch, rows, columns = map(_block, dims)
        counts = tuple(math.prod(part.size for part in dim if part.varies) for dim in dims)
        if any(size > 1 for size in batch) or (scales := self._seen(build, leaf, counts)) is None:
            return None
        blocks = Blocks((columns, rows) if self.is_transposed else (rows, columns))
        return build.node("scaled", (matrix, scales), matrix.shape, "float32", blocks)

    def places(self) -> Iterator[Place]:
        """The dimensions of the argument of numbers that are sizes of blocks: another size is one of other blocks."""
        if self.scales is None or self.numbers.op != "input":
            return
        given, (_, parts) = Input.of(self.numbers), _parts(self.scales, self.numbers.shape)
        blocks = [dim for dim, own in enumerate(parts) if own and not any(part.varies for part in own)]
        inner = {(self.numbers.shape[dim], given.stride[dim]) for dim in blocks}
        for dim, place in enumerate(zip(*given.root, strict=True)):
            if place in inner:
                yield given.index, dim

    def _seen(self, build: GraphBuilder, value: Node, shape: Shape) -> Node | None:
        """A value as it lies in memory, in this shape or its transposed one; None where that needs a copy."""
        seen, rank = build.reshape(build.stored(value), shape), len(shape)
        if self.is_transposed and seen.op in IN_MEMORY:
            seen = push_permute(build, seen, (*range(rank - 2), rank - 1, rank - 2))
        return seen if seen.op in IN_MEMORY else None


def _parts(scales: Node, shape: Shape) -> tuple[Node, Dims]:
    """The value that the scales are made of by repeating, and the parts of each dimension of `shape`, their own."""
    leaf, parts = scales, [[Part(size, size > 1)] for size in scales.shape]
    if scales.op == "cast" and scales.dtype == scales.inputs[0].dtype:  # repeats
        leaf, parts = _parts(scales.inputs[0], scales.shape)
    elif scales.op == "reshape":
        inner, own = _parts(scales.inputs[0], scales.inputs[0].shape)
        if (regrouped := _regrouped(own, scales.inputs[0].shape, scales.shape)) is not None:
            leaf, parts = inner, regrouped
    parts = [*([] for _ in range(len(shape) - len(parts))), *parts]
    own_sizes = (math.prod(part.size for part in dim) for dim in parts)
    return leaf, [
        dim if own == size else [Part(size, False)] for dim, own, size in zip(parts, own_sizes, shape, strict=True)
    ]


def _regrouped(parts: Dims, old: Shape, new: Shape) -> Dims | None:
    """The parts of each dimension where some of those of `old` are merged; None where one is split."""
    groups = dimension_groups(old, new)
    if groups is None or any(len(after) > 1 for _, after in groups):
        return None
    merged: Dims = [[] for _ in new]
    for before, after in groups:
        for at in after:
            merged[at] = [part for dim in before for part in parts[dim]]
    return merged


def _is_repeated_in_place(dim: Sequence[Part]) -> bool:
    """Whether each scale is repeated by itself, not all of them one after the other."""
    varying = [part.varies for part in dim if part.size > 1]
    return varying == sorted(varying, reverse=True)


def _block(dim: Sequence[Part]) -> int:
    """How many neighbours have one scale, 0 where all have the same."""
    return math.prod(p.size for p in dim if not p.varies) if any(p.varies for p in dim) else 0


def with_block_scales(graph: Graph) -> Graph:
    """The graph with products of float8 numbers and the scales of their blocks, where the tensor cores' sums serve.

    Results of 16 bits do not show that sums of pieces of k have 14.
    """
    if any(node.dtype not in HALVES for node in graph.outputs):
        return graph
    build = GraphBuilder()
    return with_nodes(graph, lambda node: _of_blocks(build, node) or node if node.op == "contract" else node)


def _of_blocks(build: GraphBuilder, node: Node) -> Node | None:
    build.origin = node.origin
    given = [Scaled.of(side) for side in node.inputs]
    factors = [side.built(build) for side in given if side is not None]
    scaled = [factor for factor in factors if factor is not None]
    if len(scaled) < 2 or all(side.op != "scaled" for side in scaled):
        return None
    attrs = replace(Contraction.of(node), short_sums=ShortSums.OF_PIECES)
    return build.node("contract", scaled, node.shape, node.dtype, attrs)


def block_places(graph: Graph) -> Iterator[Place]:
    """The dimensions of arguments that are sizes of blocks of factors, which have one scale each."""
    for node in graph.nodes():
        if node.op == "contract":
            for side in filter(None, map(Scaled.of, node.inputs)):
                yield from side.places()

"""What an interleaving kernel computes: phases put in order, the work on each position, and windows of whole blocks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Operand
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, is_float
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.window_attributes import Interleaving
from cutesmith.patterns.graph.windows import Pooling, Span
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import safe_names


@dataclass(frozen=True)
class InterleavingProblem:
    """Phases as `products`, and what becomes of their positions; a block has one place of each phase.

    `element` is the function of a position; `pool` makes one of the positions of a block, where there is one, and
    `epilogue` is the function of what it gives.
    """

    graph: Graph
    arguments: tuple[str, ...]
    anchor: Node
    products: tuple[Operand, ...]
    pool: Node | None
    element: Epilogue
    epilogue: Epilogue

    @property
    def order(self) -> Interleaving:
        """Where each position is."""
        return Interleaving.of(self.anchor)

    @property
    def leading(self) -> int:
        """How many dimensions are not positions."""
        return len(self.anchor.shape) - self.order.rank

    @property
    def result(self) -> Shape:
        """The shape of what is stored."""
        return (self.pool or self.anchor).shape

    @property
    def blocks(self) -> Shape:
        """How many blocks there are along each dimension; of the leading ones their sizes."""
        if self.pool is not None:
            return self.pool.shape
        sizes, strides = self.anchor.shape[self.leading :], self.order.strides
        return (*self.anchor.shape[: self.leading], *(-(-s // by) for s, by in zip(sizes, strides, strict=True)))

    @property
    def cut(self) -> list[int]:
        """The dimensions, among those of positions, whose last block is not whole."""
        if self.pool is not None:
            return []
        sizes = zip(self.anchor.shape[self.leading :], self.order.strides, strict=True)
        return [dim for dim, (size, stride) in enumerate(sizes) if size % stride]

    @property
    def state(self) -> str:
        """DSL type of a position."""
        return COMPUTE_TYPE[self.anchor.dtype]

    @property
    def pooled(self) -> str:
        """DSL type in which a window is combined."""
        return COMPUTE_TYPE[self.pool.inputs[0].dtype] if self.pool else self.state

    @property
    def is_mean(self) -> bool:
        """Whether the positions of a block are summed up, and not the largest taken."""
        return self.pool is not None and Pooling.of(self.pool).operation == "mean"

    @property
    def divisor(self) -> int:
        """Of a sum of positions."""
        assert self.pool is not None
        return Pooling.of(self.pool).divisor or math.prod(self.order.strides)


def analyse(graph: Graph, reserved: Collection[str]) -> InterleavingProblem:
    """The problem of a graph of one interleaving, perhaps pooled; UnmatchedError names the first node in the way.

    `reserved` are the names that the template binds.
    """
    anchors = [node for node in graph.nodes() if node.op == "interleave"]
    if len(anchors) != 1:
        raise UnmatchedError(f"{len(anchors)} values of phases in the graph", operation="interleave")
    (anchor,) = anchors
    order, leading = Interleaving.of(anchor), len(anchor.shape) - len(Interleaving.of(anchor).phases)
    pool = _pool(graph, anchor)
    inside = set(map(id, nodes_of(pool.inputs))) if pool else set()
    for node in graph.nodes():
        _check(node, anchor, (anchor if pool is None or id(node) in inside else pool).shape)
    for output in graph.outputs:
        if output.shape != (pool or anchor).shape:
            raise UnmatchedError(f"{output.where} has another shape than the positions", operation=output.where)
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    coordinates = [f"at_{dim}" for dim in range(leading)]
    writer = FunctionWriter(names, reserved, len(anchor.shape), {}, fast=is_fast(graph))
    products = tuple(map(writer.read, anchor.inputs))
    places = _named([*coordinates, *(f"y_{dim}" for dim in range(order.rank))])
    blocks = _named([*coordinates, *(f"j_{dim}" for dim in range(order.rank))])
    writer.move(places)
    if pool is None:
        element = epilogue = writer.epilogue(graph.outputs, {id(anchor): Given.of(anchor)})
    else:
        element = writer.function([pool.inputs[0]], {id(anchor): Given.of(anchor)})
        writer.move(blocks)
        epilogue = writer.epilogue(graph.outputs, {id(pool): Given.of(pool)})
    return InterleavingProblem(graph, tuple(names), anchor, products, pool, element, epilogue)


def _named(coordinates: Sequence[str]) -> dict[int, str]:
    return {place - len(coordinates): name for place, name in enumerate(coordinates)}


def _pool(graph: Graph, anchor: Node) -> Node | None:
    """The only pooling, whose windows must be the blocks of the phases."""
    pools = [node for node in graph.nodes() if node.op == "pool"]
    if not pools:
        return None
    blocks = tuple(Span(stride, stride) for stride in Interleaving.of(anchor).strides)
    pooling = Pooling.of(pools[0])
    is_known = pooling.operation in ("max", "mean") and is_float(pools[0].dtype)
    if len(pools) > 1 or not is_known or pooling.spans != blocks or pools[0].inputs[0].shape != anchor.shape:
        raise UnmatchedError(f"{pools[0].where} has other windows than the phases' blocks", operation=pools[0].where)
    return pools[0]


def _check(node: Node, anchor: Node, frame: Shape) -> None:
    """Whether a node can be part of the kernel: pointwise work that broadcasts to the positions, or to the windows."""
    if node in anchor.inputs:
        if node.op != "input":
            raise UnmatchedError(f"{node.where} is computed before the phases lie in memory", operation=node.where)
        return
    if node.op not in (*LEAVES, "interleave", "pool") and not node.is_pointwise:
        raise UnmatchedError(f"{node.where} ({node.op}) is not pointwise work beside phases", operation=node.where)
    aligned = zip(reversed(node.shape), reversed(frame), strict=False)
    if len(node.shape) > len(frame) or any(size not in (1, full) for size, full in aligned):
        where = f"{node.where} has shape {node.shape}"
        raise UnmatchedError(f"{where}, which does not align with {frame}", operation=node.where)

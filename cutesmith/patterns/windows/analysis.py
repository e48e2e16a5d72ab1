"""What a window kernel computes: pooled windows of an image, or the convolution of few channels; and work around it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.epilogue import Epilogue, FunctionWriter, Given, Operand
from cutesmith.patterns.graph.attributes import Contraction, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape, covers
from cutesmith.patterns.graph.window_attributes import Windows
from cutesmith.patterns.graph.windows import Pooling, Samples, Share, Span
from cutesmith.patterns.writing.expressions import is_fast
from cutesmith.patterns.writing.naming import safe_names

MOST_CHANNELS = 4
"""Of a group of a convolution, and of its result: more are products for tensor cores."""


@dataclass(frozen=True)
class Weights:
    """Of a convolution: the operand ([groups,] features, channels * taps), and how many channels a window sees."""

    operand: Operand
    channels: int


@dataclass(frozen=True)
class WindowsProblem:
    """Windows over an image (…, *sizes) and what becomes of them, (…, *positions); sizes are the traced ones.

    `element` is the function of the tensors that gives the image, `epilogue` that of what each window gives. The result
    of a convolution has its positions in one dimension: `is_flat`.
    """

    graph: Graph
    arguments: tuple[str, ...]
    anchors: tuple[Node, ...]
    spans: tuple[Span | Share | Samples, ...]
    image_shape: Shape
    positions: Shape
    element: Epilogue
    epilogue: Epilogue
    weights: Weights | None

    @property
    def rank(self) -> int:
        """How many dimensions windows have."""
        return len(self.spans)

    @property
    def is_flat(self) -> bool:
        """Whether the positions of the result are one dimension."""
        return self.weights is not None

    @property
    def leading(self) -> int:
        """How many dimensions of the result are not positions."""
        return len(self.anchors[0].shape) - (1 if self.is_flat else self.rank)

    @property
    def pooling(self) -> Pooling | None:
        """What becomes of a window; None for a convolution."""
        return None if self.weights else Pooling.of(self.anchors[0])

    @property
    def is_placed(self) -> bool:
        """Whether the place of the largest element is wanted."""
        return any(node.op == "pool" and Pooling.of(node).operation == "argmax" for node in self.anchors)

    @property
    def is_mean(self) -> bool:
        """Whether a window's sum is divided."""
        return self.pooling is not None and self.pooling.operation == "mean"

    @property
    def is_sampled(self) -> bool:
        """Whether a result lies between elements."""
        return self.pooling is not None and self.pooling.operation == "sample"

    @property
    def is_extreme(self) -> bool:
        """Whether the largest element of a window is wanted."""
        return self.pooling is not None and not self.is_mean and not self.is_sampled

    @property
    def state(self) -> str:
        """DSL type in which a window is summed up."""
        first = self.anchors[0]
        if self.weights:
            return COMPUTE_TYPE[Contraction.of(first).accumulate]
        largest = [node for node in self.anchors if Pooling.of(node).operation != "argmax"]
        return COMPUTE_TYPE[largest[0].dtype if largest else first.inputs[0].dtype]

    @property
    def taps(self) -> int:
        """Elements that a window sees, those of all channels of a group."""
        return _taps(self) * (self.weights.channels if self.weights else 1)


def _taps(problem: WindowsProblem) -> int:
    sizes = problem.image_shape[-problem.rank :]
    counts = (
        math.ceil(size / span.count) if isinstance(span, Share) else span.taps
        for span, size in zip(problem.spans, sizes, strict=True)
    )
    return math.prod(counts)


def analyse(graph: Graph, reserved: Collection[str]) -> WindowsProblem:
    """The problem of a graph of one image's windows and pointwise work; UnmatchedError names the first node in the way.

    `reserved` are the names that the template binds.
    """
    anchors = [node for node in graph.nodes() if node.op in ("pool", "contract")]
    if not anchors:
        raise UnmatchedError("no window in the graph", operation="")
    names = safe_names([argument.name for argument in graph.arguments], reserved)
    first, rank = anchors[0], len(anchors[0].shape)
    inside = set(map(id, nodes_of(tuple(child for anchor in anchors for child in anchor.inputs))))
    for node in graph.nodes():
        _check_beside(graph, node, anchors[0], is_inside=id(node) in inside)
    for output in graph.outputs:
        value = output.inputs[0] if output.op == "reshape" else output
        if value.shape != first.shape or (value is not output and first.op == "pool"):
            raise UnmatchedError(f"{output.where} has another shape than the windows", operation=output.where)
    writer = FunctionWriter(names, reserved, rank, {}, fast=is_fast(graph))
    if first.op == "contract":
        return _convolution(graph, names, first, writer)
    spans = _spans_of(anchors)
    image, leading = first.inputs[0], rank - len(spans)
    _check_image_side(image)
    writer.move(_coordinates(leading, [f"y_{dim}" for dim in range(len(spans))]))
    element = writer.function([image], {})
    if not covers([operand.shape for operand in element.operands], image.shape):
        raise UnmatchedError(f"{first.where} has windows of what is expanded along a dimension", operation=first.where)
    writer.move(_coordinates(leading, [f"q_{dim}" for dim in range(len(spans))]))
    given = {id(node): Given.of(node, "place" if Pooling.of(node).operation == "argmax" else "acc") for node in anchors}
    epilogue = writer.epilogue(graph.outputs, given)
    positions = first.shape[leading:]
    arguments = tuple(names)
    return WindowsProblem(
        graph, arguments, tuple(anchors), spans, image.shape, positions, element, epilogue, weights=None
    )


def _coordinates(leading: int, trailing: Sequence[str]) -> dict[int, str]:
    names = [*(f"at_{dim}" for dim in range(leading)), *trailing]
    return {place - len(names): name for place, name in enumerate(names)}


def _spans_of(pools: Sequence[Node]) -> tuple[Span | Share | Samples, ...]:
    """Those of all pools: of one image, and one pass makes what they give."""
    first, *others = pools
    for other in others:
        same = (
            other.op == "pool" and other.inputs == first.inputs and Pooling.of(other).spans == Pooling.of(first).spans
        )
        if not same or Pooling.of(first).operation not in ("max", "argmax"):
            raise UnmatchedError(f"{other.where} has other windows than {first.where}", operation=other.where)
    return Pooling.of(first).spans


def _of_each_group(factors: Node, groups: Shape) -> Node:
    """The weights of all groups: those that they share are seen expanded."""
    if factors.shape[:-2] == groups:
        return factors
    view = View(f"{{0}}.expand({', '.join(map(str, groups))}, -1, -1)")
    expanded = GraphBuilder().view_in_memory(factors, view, lambda base: base.expand(*groups, -1, -1))
    if expanded is None:
        raise UnmatchedError(f"{factors.where} has weights for other groups", operation=factors.where)
    return expanded


def _convolution(graph: Graph, names: list[str], product: Node, writer: FunctionWriter) -> WindowsProblem:
    factors, seen = product.inputs
    products = [node for node in graph.nodes() if node.op in ("pool", "contract")]
    if len(products) != 1 or seen.op != "windows":
        raise UnmatchedError(f"{product.where} is not a convolution alone", operation=product.where)
    windows, image = Windows.of(seen), seen.inputs[0]
    if any(each != 1 for each in windows.divisor) or any(windows.more) or min(windows.dilation) < 0:
        raise UnmatchedError(f"{product.where} is transposed", operation=product.where)
    if windows.taps_first:
        raise UnmatchedError(f"{product.where} has weights with the taps first", operation=product.where)
    for side in (factors, image):
        if side.op != "input":
            raise UnmatchedError(f"{side.where} is computed before the product", operation=side.where)
    factors = _of_each_group(factors, product.shape[1:-2])
    channels = image.shape[-windows.rank - 1]
    if channels > MOST_CHANNELS or product.shape[-2] > MOST_CHANNELS:
        raise UnmatchedError(f"{product.where} has many channels a group", operation=product.where)
    spans = tuple(map(Span, windows.taps, windows.step, windows.start, windows.dilation))
    sizes = image.shape[-windows.rank :]
    weights = Weights(writer.function([factors], {}).operands[0], channels)
    element = writer.function([image], {})
    leading = len(product.shape) - 1
    writer.move(_coordinates(leading, ["position"]))
    epilogue = writer.epilogue(graph.outputs, {id(product): Given.of(product)})
    positions = tuple(span.law.of(size) for size, span in zip(sizes, spans, strict=True))
    return WindowsProblem(
        graph, tuple(names), (product,), spans, image.shape, positions, element, epilogue, weights=weights
    )


def _check_beside(graph: Graph, node: Node, anchor: Node, *, is_inside: bool) -> None:
    """Whether a node can be part of the kernel: pointwise work, aligned with the result or inside the windows."""
    if node.op in (*LEAVES, "pool", "contract", "windows") or node.is_pointwise:
        frame = anchor.shape
        aligned = zip(reversed(node.shape), reversed(frame), strict=False)
        if is_inside or (len(node.shape) <= len(frame) and all(size in (1, full) for size, full in aligned)):
            return
        where = f"{node.where} has shape {node.shape}"
        raise UnmatchedError(f"{where}, which does not align with {frame}", operation=node.where)
    last = node.op == "reshape" and any(node is output for output in graph.outputs)
    if not last or anchor.op != "contract":
        raise UnmatchedError(f"{node.where} ({node.op}) is not pointwise work beside windows", operation=node.where)


def _check_image_side(image: Node) -> None:
    for node in nodes_of((image,)):
        aligned = zip(reversed(node.shape), reversed(image.shape), strict=False)
        if len(node.shape) > len(image.shape) or any(size not in (1, full) for size, full in aligned):
            where = f"{node.where} has shape {node.shape}"
            raise UnmatchedError(f"{where}, which does not align with {image.shape}", operation=node.where)

"""Whether two graphs say the same: the check that a traced number took no part in deciding what is computed.

For it a graph is rebuilt with numbers in the place of its run-time scalars, as a plain trace has them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from cutesmith.patterns.graph.attributes import Constant, Gather, Number, Reduction, Scalar, Viewed
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node, views_of
from cutesmith.patterns.graph.size_laws import SizeLaw
from cutesmith.patterns.graph.window_attributes import Windows
from cutesmith.patterns.graph.windows import Pooling


def same_graph(first: Graph, second: Graph) -> bool:
    """Equal structure, shapes, dtypes, attributes and constants (NaN equals NaN), whatever their origins."""
    if len(first.outputs) != len(second.outputs) or first.output_strides != second.output_strides:
        return False
    return all(_same(a, b) and a.shape == b.shape for a, b in node_pairs(first, second))


def structure(graph: Graph) -> Hashable:
    """Equal for graphs that differ in the names of their arguments and in origins alone.

    Attributes are compared as texts, in which 1, 1.0 and True differ.
    """
    places: dict[int, int] = {}
    nodes = []
    for node in graph.nodes():
        places[id(node)] = len(places)
        inputs = tuple(places[id(child)] for child in node.inputs)
        nodes.append((node.op, inputs, node.shape, node.dtype, repr(node.attrs), repr(node.sizes)))
    arguments = [repr(replace(argument, name="")) for argument in graph.arguments]
    outputs = tuple(places[id(node)] for node in graph.outputs)
    return repr(replace(graph, arguments=(), outputs=())), tuple(arguments), tuple(nodes), outputs


class Slot(NamedTuple):
    """The place of a number in a graph: the value of a constant, a size in the views of a node, or one of its shape.

    Of windows there are the sizes that they go along ("along") and how many they are there ("positions"), of a tensor
    in memory its sizes before it is viewed ("root").
    """

    node: int  # its id
    kind: str = "value"
    at: int = 0


def numbers_beside(first: Graph, second: Graph) -> dict[Slot, Number] | None:
    """The values that the numbers of `first` have in `second`, a trace on other sizes.

    None when the graphs differ in more than sizes, strides and constants; without those sizes that have several values.
    """
    if len(first.outputs) != len(second.outputs):
        return None
    found, several = dict[Slot, Number](), set[Slot]()
    for a, b in node_pairs(first, second):
        if not _same(a, b, apart=_SIZES | {"value"} if a.op == "constant" else _SIZES):
            return None
        for slot, value in _numbers(a, b):
            if not _equal(found.setdefault(slot, value), value):
                if slot.kind == "value":
                    return None  # one constant here, two there
                several.add(slot)
    return {slot: value for slot, value in found.items() if slot not in several}


_SIZES = frozenset({"stride", "offset", "root", "taps", "views", "view"})


def _numbers(node: Node, other: Node) -> Iterator[tuple[Slot, Number]]:
    """The slots of a node, with the values of the node at the same place of another graph."""
    if node.op == "constant":
        yield Slot(id(node)), Constant.of(other).value
    sizes = [size for view in views_of(other) for size in view.sizes]
    yield from ((Slot(id(node), "view", at), size) for at, size in enumerate(sizes) if isinstance(size, int))
    if isinstance(other.attrs, Viewed):
        yield from ((Slot(id(node), "root", at), size) for at, size in enumerate(other.attrs.root[0]))
    if node.has_own_shape:
        yield from ((Slot(id(node), "shape", at), size) for at, size in enumerate(other.shape))
    for at, law in enumerate(window_laws(other)):
        size = other.inputs[0].shape[at - len(window_laws(other))]
        yield Slot(id(node), "along", at), size
        if law is not None:
            yield Slot(id(node), "positions", at), law.of(size)


def window_laws(node: Node) -> list[SizeLaw | None]:
    """How many windows a node has along each of the last dimensions of its image, by the size of that."""
    if isinstance(node.attrs, Windows):
        return [node.attrs.law(dim) for dim in range(node.attrs.rank)]
    return [span.law for span in node.attrs.spans] if isinstance(node.attrs, Pooling) else []


def node_pairs(first: Graph, second: Graph) -> Iterator[tuple[Node, Node]]:
    """Nodes at the same place, each pair once, as long as they have as many inputs."""
    seen: set[tuple[int, int]] = set()
    stack = list(zip(first.outputs, second.outputs, strict=True))
    while stack:
        a, b = stack.pop()
        if (id(a), id(b)) not in seen:
            seen.add((id(a), id(b)))
            yield a, b
            stack.extend(zip(a.inputs, b.inputs, strict=False))


def _same(first: Node, second: Node, apart: frozenset[str] = frozenset()) -> bool:
    """Whether two nodes say the same, their inputs, sizes and the attributes `apart` left out."""
    kinds = [(node.op, node.dtype, len(node.inputs), len(node.shape), type(node.attrs)) for node in (first, second)]
    own, other = vars(first.attrs), vars(second.attrs)
    sources = [[view.source for view in views_of(node)] for node in (first, second)]
    same = kinds[0] == kinds[1] and sources[0] == sources[1]
    return same and all(_equal(own[name], other[name]) for name in own.keys() - apart)


def _equal(first: object, second: object) -> bool:
    both_nan = isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second)
    return both_nan or bool(first == second)


def with_numbers(graph: Graph, numbers: Mapping[int, Number]) -> Graph:
    """The graph whose `scalar` nodes became constants (argument index → number), folded as a trace folds them."""
    build = GraphBuilder()
    rebuilt: dict[int, Node] = {}
    for node in graph.nodes():
        inputs = [rebuilt[id(child)] for child in node.inputs]
        rebuilt[id(node)] = _rebuilt(build, node, inputs, numbers)
    outputs = tuple(build.materialise(build.expand(rebuilt[id(node)], node.shape)) for node in graph.outputs)
    return Graph(graph.arguments, outputs, graph.output_strides, graph.returns_tuple, assumes=graph.assumes)


def _rebuilt(build: GraphBuilder, node: Node, inputs: list[Node], numbers: Mapping[int, Number]) -> Node:
    build.origin = node.origin
    if node.op == "scalar" and Scalar.of(node).index in numbers:
        return build.constant(numbers[Scalar.of(node).index], node.dtype)
    if node.op == "cast":
        return build.expand(build.cast(inputs[0], node.dtype), node.shape)
    if node.is_pointwise:
        return build.expand(build(node.op, *inputs, dtype=node.dtype), node.shape)
    if node.is_reduction:
        reduction = Reduction.of(node)
        return build.reduce(node.op, inputs[0], reduction.dims, node.dtype, reduction.correction)
    if node.op == "reshape":
        return build.reshape(inputs[0], node.shape)
    if node.op == "gather":
        return build.gather(inputs[0], inputs[1], Gather.of(node).dim)
    return build.node(node.op, inputs, node.shape, node.dtype, node.attrs)

"""Transforms of which a part is wanted, or of lines with zeros behind: only the rest is written and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutesmith.patterns.cutting.stored_values import slices_of
from cutesmith.patterns.graph.attributes import Constant, Iota, Stored, Transform
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Graph, Node, users_of, with_nodes, with_some
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.size_laws import SizeLaw
from cutesmith.patterns.graph.takes import is_own_place, whole_number


def with_short_lines(graph: Graph) -> Graph:
    """The graph whose transforms have the numbers that are read of them alone, and are given no zeros."""
    if not any(node.op == "transform" for node in graph.nodes()):
        return graph
    return _with_less_given(_with_less_wanted(graph))


def _with_less_wanted(graph: Graph) -> Graph:
    """Slices of a transform as the results of it, where nothing else reads them."""
    users, slices = users_of(graph), dict[int, tuple[int, int]]()
    returned = set(map(id, graph.outputs))
    for node in graph.nodes():
        read = users[id(node)]
        if node.op == "transform" and id(node) not in returned:
            places = {_slice_of(node, each) for each in read}
            if len(places) == 1 and (place := places.pop()) is not None:
                slices |= {id(each): place for each in read}
    made = dict[tuple[int, int, int], Node]()
    waiting = (slices[id(node)] for node in list(graph.nodes()) if id(node) in slices)

    def sliced(read: Node) -> Node:
        (node,), (start, size) = read.inputs, next(waiting)
        attrs = replace(Transform.of(node), start=Transform.of(node).start + start)
        sizes = (*node.sizes[:-1], *read.sizes[-1:]) if node.sizes and read.sizes else ()
        short = replace(node, shape=read.shape, attrs=attrs, sizes=sizes)
        return made.setdefault((id(node), start, size), short)

    return with_some(graph, slices, sliced) if slices else graph


def _slice_of(node: Node, read: Node) -> tuple[int, int] | None:
    """The first number and how many there are where a value is seen as a slice of its lines; None for other views."""
    if read.op != "stored" or Stored.of(read).root[0] != node.shape or read.shape[:-1] != node.shape[:-1]:
        return None
    laws = [law for view in Stored.of(read).views for law in view.sizes]
    if not all(isinstance(law, SizeLaw) and not law.terms for law in laws):
        return None
    found = slices_of(read) or []
    in_order = [dim for dim, *_ in found] == list(range(len(node.shape)))
    return found[-1][1:] if in_order else None


def _with_less_given(graph: Graph) -> Graph:
    """Lines without the zeros that are put behind them."""
    build, made = GraphBuilder(), dict[tuple[int, ...], tuple[Node, ...]]()

    def shortened(node: Node) -> Node:
        if node.op != "transform" or Transform.of(node).of_half:
            return node
        key = tuple(map(id, node.inputs))
        if key not in made:
            made[key] = _shortened(build, node.inputs)
        return node if made[key] == node.inputs else replace(node, inputs=made[key])

    return with_nodes(graph, shortened)


def _shortened(build: GraphBuilder, inputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """The parts of a line without zeros behind; as they are where they have none, or not as many each."""
    length = inputs[0].shape[-1]
    padded = [found for each in inputs if (found := _padded(each, length))]
    sizes = {size for _, size in padded}
    if len(padded) < len(inputs) or len(sizes) > 1:
        return inputs
    (size,) = sizes
    short = _Shortened(build, length, size)
    values = [value for each, _ in padded if (value := short.of(each)) is not None]
    shape = (*inputs[0].shape[:-1], size)
    given = tuple(build.materialise(build.expand(value, shape)) for value in values)
    return given if len(given) == len(inputs) else inputs


def _padded(node: Node, length: int) -> tuple[Node, int] | None:
    """What a line is before its zeros, and how many numbers; None where none are put behind."""
    if node.op != "where" or node.inputs[2].op != "constant" or Constant.of(node.inputs[2]).value != 0:
        return None
    test, value, _ = node.inputs
    if test.op != "lt" or not is_own_place(test.inputs[0], length, -1):
        return None
    size = whole_number(test.inputs[1]) if test.inputs[1].op == "constant" else None
    return (value, size) if size is not None and 0 < size < length else None


class _Shortened:
    """Values of lines of `length` numbers as those of their first `size`."""

    def __init__(self, build: GraphBuilder, length: int, size: int) -> None:
        self.build, self.length, self.size = build, length, size

    def of(self, node: Node) -> Node | None:
        """The value; None where it has no form for fewer numbers."""
        if node.shape[-1:] != (self.length,):
            return node
        shape = (*node.shape[:-1], self.size)
        if node.op == "iota":
            return self.build.iota(shape, Iota.of(node).dim)
        if not (node.is_pointwise or node.op == "take"):
            return None
        taken = node.op == "take"
        inputs = [self.of(each) for each in node.inputs[taken:]]
        known = [each for each in inputs if each is not None]
        if len(known) < len(inputs):
            return None
        return (
            self._take(node.inputs[0], known, shape)
            if taken
            else self.build.node(node.op, known, shape, node.dtype, node.attrs)
        )

    def _take(self, source: Node, places: Sequence[Node], shape: Shape) -> Node:
        """The elements at these places, which may be the source itself."""
        rank = len(source.shape)
        own = [is_own_place(place, size, at - rank) for at, (place, size) in enumerate(zip(places, source.shape))]
        if all(own) and source.op in IN_MEMORY and source.shape == shape[len(shape) - rank :]:
            return source
        return self.build.node("take", (source, *places), shape, source.dtype)

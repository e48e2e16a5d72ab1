"""Elements at computed places: which integers are places, and which reads are of neighbours, a vector at once.

A thread computes a vector: neighbours along the last dimension of the result. What depends on the other dimensions only
is the same for all of them. A read whose last place is the result's own one but for a shift is a vector, too, where the
shift and the sizes come in whole vectors, and a vector backwards where the place counts down, as that of a flip does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cutesmith.patterns.graph.attributes import Constant, Input, Iota, Scalar, Sized
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import INDEX
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.views import push_permute

OF_PLACES = frozenset("add sub neg minimum maximum where remainder floor_div".split())
"""Operations that make a place of places: no result is further off than the sum of its operands."""
FARTHEST = 2**20
"""The largest constant in a place."""


def is_fixed(node: Node) -> bool:
    """Whether the number follows shapes alone, so that it is known when a kernel is compiled."""
    return isinstance(node.attrs, Sized | Scalar) and node.attrs.size is not None


def with_places(graph: Graph) -> Graph:
    """The graph with the type of places for integers that are made of coordinates, sizes and small constants."""

    def typed(node: Node) -> Node:
        return replace(node, dtype=INDEX) if _is_place(node) else node

    changed = with_nodes(graph, typed)
    outputs = zip(changed.outputs, graph.outputs, strict=True)
    return replace(changed, outputs=tuple(replace(new, dtype=old.dtype) for new, old in outputs))


def with_neighbours_last(graph: Graph) -> Graph:
    """The graph with takes of arguments seen so that what lies side by side does so along the last dimension."""
    build = GraphBuilder()

    def turned(node: Node) -> Node:
        if node.op != "take" or node.inputs[0].op != "input":
            return node
        source, *places = node.inputs
        steps = zip(source.shape, Input.of(source).stride, strict=True)
        apart = {step: dim for dim, (size, step) in enumerate(steps) if size > 1}
        nearest = apart.get(1, len(places) - 1)
        order = [*(dim for dim in range(len(places)) if dim != nearest), nearest]
        seen = push_permute(build, source, order)
        return node if seen is source else replace(node, inputs=(seen, *(places[dim] for dim in order)))

    return with_nodes(graph, turned)


def _is_place(node: Node) -> bool:
    if node.dtype != "int64":
        return False
    if node.op == "constant":
        return abs(Constant.of(node).value) <= FARTHEST
    if node.op in OF_PLACES:
        values = node.inputs[1:] if node.op == "where" else node.inputs
        return all(value.dtype == INDEX for value in values)
    return node.op == "iota" or is_fixed(node)


def reach(graph: Graph) -> int:
    """How many times the largest of all dimensions, or numbers that follow them, a place may come to."""
    known: dict[int, int] = {}
    for node in graph.nodes():
        if node.dtype == INDEX:
            operands = [known[id(each)] for each in node.inputs if each.dtype == INDEX]
            own = abs(int(Constant.of(node).value)) if node.op == "constant" else 1
            known[id(node)] = max(1, own, sum(operands))
    return max(known.values(), default=1)


Sum = tuple[tuple[int, Node], ...]
"""Numbers that are added up, each with its sign."""


@dataclass(frozen=True)
class Along:
    """Where a place lies along the last dimension of the result: its coordinate, or minus that, and a sum of numbers.

    `shift` is that sum, signed; `wholes` are sums that must come in whole vectors beside it: a number of which a
    multiple is added, and what was added before a remainder. All numbers are known when the kernel is compiled.
    """

    backwards: bool = False
    shift: Sum = ()
    wholes: tuple[Sum, ...] = ()

    def shifted(self, sign: int, number: Node) -> Along:
        """The place with a number added or taken off."""
        return replace(self, shift=(*self.shift, (sign, number)))

    def around(self, number: Node) -> Along:
        """The place with any multiple of a number added."""
        return replace(self, wholes=(*self.wholes, ((1, number),)))

    def remainder(self, number: Node) -> Along:
        """The rest of the place: it begins again inside a vector unless what was added before comes in whole ones."""
        return replace(self.around(number), wholes=(*self.around(number).wholes, self.shift))

    def negated(self) -> Along:
        """Minus the place."""
        return replace(self, backwards=not self.backwards, shift=tuple((-sign, each) for sign, each in self.shift))

    def is_between(self, vector: int) -> bool:
        """Whether neighbours are parts of two vectors of so many elements side by side, as those of a stencil are.

        They are so for any shift, if vectors begin again where the place does: a shift after a remainder moves them.
        """
        return not self.backwards and _sum(self.shift) % vector != 0

    def codes(self, code: Callable[[Node], str], *, between: bool) -> list[str]:
        """What must come in whole vectors, as code of `kernel_fn`; `code` gives that of a number."""
        shift = [] if between else [added(self.shift, code, "+ 1" if self.backwards else "")]
        found = [*shift, *(added(each, code) for each in self.wholes if not (between and each == self.shift))]
        return [each for each in found if each]

    def numbers(self, *, between: bool) -> list[int]:
        """What must come in whole vectors, as traced."""
        shift = [] if between else [_sum(self.shift) + self.backwards]
        return [*shift, *(_sum(each) for each in self.wholes if not (between and each == self.shift))]


def added(numbers: Sum, code: Callable[[Node], str], more: str = "") -> str:
    """Code of a sum; `code` gives that of a number."""
    terms = [("- " if sign < 0 else "+ ") + code(number) for sign, number in numbers]
    return " ".join([*terms, more] if more else terms).removeprefix("+ ")


def _sum(numbers: Sum) -> int:
    return sum(sign * _traced(number) for sign, number in numbers)


def along(place: Node, is_shared: Callable[[Node], bool]) -> Along | None:
    """How a place follows the last coordinate; None where the places of neighbours need not lie side by side.

    `is_shared` says whether a number is the same for all neighbours.
    """
    if is_coordinate(place, -1):
        return Along()
    if place.op == "neg":
        inner = along(place.inputs[0], is_shared)
        return inner and inner.negated()
    if place.op not in ("add", "sub", "remainder"):
        return None
    first, second = place.inputs
    if is_shared(second) and (inner := along(first, is_shared)):
        if place.op == "remainder":
            return None if inner.backwards or not _is_known(second) else inner.remainder(second)
        return _moved(inner, 1 if place.op == "add" else -1, second, is_shared)
    if place.op != "remainder" and is_shared(first) and (inner := along(second, is_shared)):
        return _moved(inner if place.op == "add" else inner.negated(), 1, first, is_shared)
    return None


def _moved(inner: Along, sign: int, number: Node, is_shared: Callable[[Node], bool]) -> Along | None:
    """A place with a number added or taken off: one that is known, or a multiple of such, as a row's beginning is."""
    if _is_known(number):
        return inner.shifted(sign, number)
    step = number.inputs[1] if number.op == "mul" else number
    return inner.around(step) if number.op == "mul" and is_shared(number.inputs[0]) and _is_known(step) else None


def _is_known(node: Node) -> bool:
    return node.op == "constant" or is_fixed(node)


def _traced(node: Node) -> int:
    if node.op == "constant":
        return int(Constant.of(node).value)
    assert isinstance(node.attrs, Sized | Scalar) and node.attrs.size is not None, "the number is not known"
    return node.attrs.size


def is_coordinate(node: Node, dim: int) -> bool:
    """Whether the node is the coordinate along a dimension, counted from the end, that has more than one element."""
    return node.op == "iota" and Iota.of(node).dim - len(node.shape) == dim and node.shape[dim] != 1

"""Rows whose elements meet others of the same row, as the halves of a rotary embedding do, in equal slices.

A thread has the elements of all slices at one place, so the partner of an element is in a register. A result that is
joined along the row is computed slice by slice, a reduction combines the slices before the row, and no element is read
at a computed place. Gates of halves and embeddings of the first channels alone are other numbers of slices.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import torch

from cutesmith.patterns.graph.attributes import Input, Iota, Reduction, Scalar, Sized
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of, place_along
from cutesmith.patterns.graph.simplification import constant_value
from cutesmith.patterns.graph.size_laws import EqualSizes, PassedSize, Place, Size, SizeLaw
from cutesmith.patterns.graph.takes import is_own_place, values_at, whole_number
from cutesmith.patterns.rows.variances import with_lowered_variances

NARROWEST = 2
"""Elements of a slice: one alone is a row without columns, and a row of none has no slices."""

MOST = 8
"""Slices of a row: each has its own statements and registers."""

COMBINED_BY = {
    "sum": "add", "mean": "add", "prod": "mul", "max": "maximum", "min": "minimum",
    "any": "logical_or", "all": "logical_and",
}  # fmt: skip
"""Reductions, and how the elements of slices are combined before the row is; the place of an extreme has none."""


@dataclass(frozen=True)
class SlicedInput(Input):
    """One of the slices side by side along the last dimension of an argument: which, and how many it has."""

    number: int = 0
    count: int = 1


@dataclass(frozen=True)
class SlicedGraph:
    """A graph of rows, and for each of its outputs the slices that it has: one for a value of rows.

    `graph` holds the sizes that the slices follow; `count` slices make a row.
    """

    graph: Graph
    outputs: tuple[tuple[Node, ...], ...]
    count: int

    @property
    def computed(self) -> Graph:
        """The graph whose outputs are the slices."""
        return replace(self.graph, outputs=tuple(itertools.chain(*self.outputs)))


def in_slices(graph: Graph) -> SlicedGraph | None:
    """The graph in slices of its rows; None where it has none, or an element meets others in another way."""
    lowered = with_lowered_variances(graph)
    size = _row_size(lowered)
    if size is None:
        return None
    wholes, wide = _wholes(lowered, size), _wide(lowered)
    width = math.gcd(size, *_cuts(lowered, wholes, wide))
    if width < NARROWEST or not 1 < size // width <= MOST:
        return None
    slices = _Slices(width, size // width, wholes, wide)
    try:
        outputs = tuple(slices.of_output(node) for node in lowered.outputs)
    except _NotInSlicesError:
        return None
    held = slices.sizes.checked_by(graph, is_same=size in graph.widths)
    return None if held is None else SlicedGraph(held, outputs, slices.count)


def _row_size(graph: Graph) -> int | None:
    """The size of the last dimension, where reductions reduce that, and perhaps others with it."""
    reductions = [node for node in graph.nodes() if node.is_reduction]
    plain = all(node.op in COMBINED_BY and len(node.shape) - 1 in Reduction.of(node).dims for node in reductions)
    sizes = {node.inputs[0].shape[-1] for node in reductions}
    return sizes.pop() if plain and len(sizes) == 1 else None


@dataclass(frozen=True)
class _Part:
    """Where an argument as it is seen begins along the last dimension of a wider view, and the sizes that say so."""

    whole: Node
    start: int
    sizes: tuple[Size, ...]


def _wholes(graph: Graph, size: int) -> dict[int, _Part]:
    """By the id of each argument as it is seen the widest view of which it is a part."""
    inputs = [node for node in graph.nodes() if node.op == "input"]
    views = inputs + [whole for node in inputs if (whole := _argument(node)).shape[-1:] == (size,)]
    of_argument: dict[int, list[Node]] = {}
    for node in sorted(views, key=lambda node: len(Input.of(node).views)):
        of_argument.setdefault(Input.of(node).index, []).append(node)
    wholes = {id(node): of_argument[Input.of(node).index] for node in inputs}
    return {id(node): next(part for whole in wholes[id(node)] if (part := _part_of(whole, node))) for node in inputs}


def _argument(node: Node) -> Node:
    """The argument as it is, of which the node is a view."""
    shape, stride = Input.of(node).root
    return replace(node, shape=shape, attrs=Input.whole(Input.of(node).index, shape, stride))


def _part_of(whole: Node, node: Node) -> _Part | None:
    """Which part of the last dimension of `whole` a view is that `narrow` made of it; None where it is not one."""
    seen, given = Input.of(node), Input.of(whole)
    count = len(given.views)
    narrow = f"{{0}}.narrow({len(node.shape) - 1}, {{1}}, {{2}})"
    steps = seen.views[count:]
    same = seen.index == given.index and seen.views[:count] == given.views and len(node.shape) == len(whole.shape)
    if not same or any(view.source != narrow for view in steps):
        return None
    sizes = tuple(size for view in steps for size in view.sizes)
    (step,) = seen.stride[-1:] or (1,)  # a value without dimensions has none
    return _Part(whole, (seen.offset - given.offset) // (step or 1), sizes)


def _wide(graph: Graph) -> frozenset[int]:
    """The ids of what has more than one place along the row: not of values of rows that have lost its dimension."""
    lost = set[int]()
    for node in graph.nodes():
        is_dropped = node.op == "reshape" and node.inputs[0].shape[-1:] == (1,)
        if is_dropped or (node.is_pointwise and any(id(child) in lost for child in node.inputs)):
            lost.add(id(node))
            lost |= {id(child) for child in node.inputs if child.op == "input" and not is_dropped}
    return frozenset(id(node) for node in graph.nodes() if node.shape[-1:] not in ((), (1,)) and id(node) not in lost)


def _cuts(graph: Graph, wholes: dict[int, _Part], wide: frozenset[int]) -> Iterable[int]:
    """Sizes and places along the last dimension, at all of which slices have to end."""
    for node in graph.nodes():
        if id(node) in wide:
            yield node.shape[-1]
        if node.op == "input":
            yield wholes[id(node)].start
        elif _is_counted(node):
            yield from (abs(number) for child in node.inputs if (number := whole_number(child)) is not None)


def _is_counted(node: Node) -> bool:
    """Whether a value follows the coordinate along the last dimension, and nothing else."""
    follows, seen, stack = False, set[int](), [node] if node.is_pointwise else []
    while stack:  # from the value down: what a joined tensor is made of would be walked again for each of its parts
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.is_pointwise:
            stack.extend(reversed(each.inputs))
        elif each.op == "iota" and Iota.of(each).dim == len(each.shape) - 1:
            follows = True
        elif whole_number(each) is None:
            return False
    return follows


def slice_of(node: Node) -> int:
    """The number of the slice that an argument is read as."""
    return node.attrs.number if isinstance(node.attrs, SlicedInput) else 0


def slices_of(node: Node) -> int:
    """How many slices the rows of an argument have."""
    return node.attrs.count if isinstance(node.attrs, SlicedInput) else 1


class _NotInSlicesError(Exception):
    """An element meets others that are not at its place of another slice."""


class _Slices:
    """What becomes of values at the places of each slice."""

    def __init__(self, width: int, count: int, wholes: dict[int, _Part], wide: frozenset[int]) -> None:
        self.build, self.width, self.count, self.wholes, self.wide = GraphBuilder(), width, count, wholes, wide
        self.sizes = _Sizes()
        self.found: dict[tuple[int, int], Node] = {}

    def of_output(self, node: Node) -> tuple[Node, ...]:
        """Its slices, in their full shapes; the value itself where it is one of rows."""
        node = node.inputs[0] if node.op == "reshape" and self._is_wide(node.inputs[0]) else node
        if not self._is_wide(node):
            return (self.of(node, 0),)
        shape = (*node.shape[:-1], self.width)
        slices = (self.of(node, number) for number in range(node.shape[-1] // self.width))
        return tuple(self.build.materialise(self.build.expand(each, shape)) for each in slices)

    def of(self, node: Node, number: int) -> Node:
        """A value in the slice of this number, or a value of rows, which is the same in all of them."""
        key = id(node), number if self._is_wide(node) else 0
        if key not in self.found:
            self.build.origin = node.origin
            self.found[key] = self._of(node, key[1])
        return self.found[key]

    def _of(self, node: Node, number: int) -> Node:
        if node.op == "input":
            return self._read(node, number)
        if node.op == "iota":
            return self._coordinate(node, number)
        if node.op in LEAVES:
            return node
        if node.is_reduction:
            return self._combined(node)
        if node.op == "take":
            return self._taken(node, number)
        if node.op == "where" and _is_counted(node.inputs[0]):
            return self._chosen(node, number)
        if not self._is_wide(node) and any(map(self._is_wide, node.inputs)):
            raise _NotInSlicesError  # values of rows lie along the columns
        inputs = [self.of(child, number) for child in node.inputs]
        if self._is_wide(node) and any(each.shape[-1:] not in ((), (1,), (self.width,)) for each in inputs):
            raise _NotInSlicesError
        if node.is_pointwise:
            return self.build(node.op, *inputs, dtype=node.dtype)
        return replace(node, inputs=tuple(inputs))

    def _is_wide(self, node: Node) -> bool:
        return id(node) in self.wide

    def _read(self, node: Node, number: int) -> Node:
        """A slice of an argument as it lies in memory, by the widest view of it."""
        part = self.wholes[id(node)]
        whole = part.whole
        if not self._is_wide(node):
            return node
        count = whole.shape[-1] // self.width
        self.sizes.follow(part, count)
        attrs = SlicedInput(**vars(Input.of(whole)), number=part.start // self.width + number, count=count)
        return self.build.node("input", (), (*whole.shape[:-1], self.width), node.dtype, attrs)

    def _coordinate(self, node: Node, number: int) -> Node:
        shape = (*node.shape[:-1], self.width) if self._is_wide(node) else node.shape
        place = self.build.iota(shape, Iota.of(node).dim)
        if Iota.of(node).dim != len(shape) - 1 or not number:
            return place
        self.sizes.numbers.append(self.width)
        return self.build("add", place, number * self.width)

    def _combined(self, node: Node) -> Node:
        """A reduction, of the combined elements of all slices."""
        (x,) = node.inputs
        slices = [self.build.operand(self.of(x, number), node.dtype) for number in range(self.count)]
        whole = functools.reduce(functools.partial(self.build, COMBINED_BY[node.op]), slices)
        if whole.shape != (*x.shape[:-1], self.width):
            raise _NotInSlicesError
        return self.build.node(node.op, (whole,), node.shape, node.dtype, node.attrs)

    def _taken(self, node: Node, number: int) -> Node:
        """What lies in memory at the places of a slice; they are those of a slice of it."""
        source, *places = node.inputs
        *others, last = places
        if source.op != "input" or not all(map(is_own_place, others, source.shape, range(-len(source.shape), -1))):
            raise _NotInSlicesError
        if not self._is_wide(source) and constant_value(last) == 0:
            return self.of(source, 0)
        first = self._first(self._places(last, number))
        if first % self.width or not 0 <= first <= source.shape[-1] - self.width:
            raise _NotInSlicesError
        return self.of(source, first // self.width)

    def _chosen(self, node: Node, number: int) -> Node:
        """What a condition of the coordinate chooses, for a whole slice."""
        condition, *choices = node.inputs
        holds = self._places(condition, number)
        if holds.any() != holds.all():
            raise _NotInSlicesError
        return self.build.retype(self.of(choices[0 if holds.all() else 1], number), node.dtype)

    def _places(self, node: Node, number: int) -> torch.Tensor:
        """A value that follows the coordinate along the row, in a slice."""
        if node.op != "iota" and not _is_counted(node):
            raise _NotInSlicesError
        self.sizes.numbers += [each for each in nodes_of((node,)) if each.op != "iota" and not each.is_pointwise]
        return values_at(node, torch.arange(number * self.width, (number + 1) * self.width))

    def _first(self, places: torch.Tensor) -> int:
        if not torch.equal(places, torch.arange(int(places[0]), int(places[0]) + self.width)):
            raise _NotInSlicesError
        return int(places[0])


class _Sizes:
    """What the slices follow: sizes of arguments along rows, and numbers that say where slices begin."""

    def __init__(self) -> None:
        self.along: dict[Place | None, int] = {}
        """How many slices dimensions of arguments have; None for those that are not known. The kernel compares all."""
        self.numbers: list[Node | Size] = []

    def follow(self, part: _Part, count: int) -> None:
        """The last dimension of an argument, and how a part of it is found."""
        self.along[place_along(part.whole, -1)] = count
        self.numbers += part.sizes

    def checked_by(self, graph: Graph, *, is_same: bool) -> Graph | None:
        """The graph that refuses sizes for which slices begin elsewhere; None where it must not refuse so many.

        `is_same`: rows are as long for all sizes.
        """
        laws, along = list(map(_law, self.numbers)), {place for place in self.along if place}
        known = graph.held | graph.checked_before
        others = {place for law in laws for place in law.places} - along - known
        if not self.numbers or (others and not along) or (graph.free_sizes and not self._grow_together(graph, known)):
            return None
        first = sorted(along & known or along)[:1]
        equal = [EqualSizes((*first, *sorted(others)))] if others else []
        graph = replace(graph, equal=(*graph.equal, *equal))
        if graph.fixed_shapes or all(map(_is_share, laws)) or {*first} & known or is_same:
            return graph
        return None if graph.free_sizes else replace(graph, held=graph.held | {*first}, fixed_shapes=not first)

    def _grow_together(self, graph: Graph, known: frozenset[Place]) -> bool:
        """Whether arguments of fewer slices than others have as many for all sizes, as far as that is known."""
        equal = [known, *(frozenset(each.places) for each in graph.equal)]
        return len({*self.along.values()}) == 1 or any(self.along.keys() <= places for places in equal)


def _law(number: Node | Size) -> SizeLaw:
    """What a number follows."""
    if isinstance(number, Node) and number.op == "sized":
        return Sized.of(number).law
    if isinstance(number, PassedSize) or (isinstance(number, Node) and number.op == "scalar"):
        index = number.index if isinstance(number, PassedSize) else Scalar.of(number).index
        return SizeLaw(0, Fraction(1), ((index, -1),), 1)
    if isinstance(number, Node):
        return SizeLaw.constant(int(constant_value(number) or 0))
    return number if isinstance(number, SizeLaw) else SizeLaw.constant(number)


def _is_share(law: SizeLaw) -> bool:
    """Whether a number is the same part of a size for all sizes."""
    return not (law.offset or law.shift or law.others) and law.power == 1

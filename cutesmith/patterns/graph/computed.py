"""Factors of products that are made of numbers in memory, element by element: quantised weights above all.

`w.to(bfloat16) * scales` of int8 or float8, scales of groups along k, and numbers of four bits, several in an element
of memory, are functions of the numbers at one place. A kernel that knows this function reads the narrow numbers, and
computes the factor in registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import NONE, Constant, Iota
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import ITEM_BYTES
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Node, nodes_of
from cutesmith.patterns.graph.shapes import Shape, dimension_groups

N, K = 0, 1
"""The dimensions of a factor that is seen as (n, k)."""

FEWEST = 4
"""Numbers that have one scale: others would be read element by element."""

PIECE_BYTES = 64
"""Of a line, that a warp reads at once: one scale for all of them multiplies their sums."""


@dataclass(frozen=True)
class Place:
    """What a coordinate of a value is of the factor's: `axis` // `block` % `size`."""

    axis: int
    block: int
    size: int


Places = tuple[Place | None, ...]
"""Of each dimension of a value; None: of size 1."""


@dataclass(frozen=True)
class Leaf:
    """A tensor in memory that the factor is made of: where its dimensions lie, and its element in the functions."""

    node: Node
    places: Places
    element: Node

    def along(self, axis: int) -> list[int]:
        """The dimensions that change along n or k."""
        return [dim for dim, place in enumerate(self.places) if place is not None and place.axis == axis]

    @property
    def group(self) -> int:
        """Neighbours along k for which it has one number, where it has some along k; else 0."""
        return next((place.block for place in self.places if place is not None and place.axis == K), 0)

    @property
    def length(self) -> int:
        """How many elements it has along k."""
        return math.prod(self.node.shape[dim] for dim in self.along(K))


@dataclass(frozen=True)
class ComputedFactor:
    """`elements[i](numbers, sides)` at (n, k // packed), (n, k // group), … times `scale` is the factor at (n, k).

    i is k % packed. `elements` are values of no dimensions over those of `numbers` and `sides`. `scale` may multiply
    sums of whole pieces of k instead.
    """

    numbers: Leaf
    sides: tuple[Leaf, ...]
    scale: Leaf | None
    elements: tuple[Node, ...]

    @property
    def packed(self) -> int:
        """How many neighbours along k an element of `numbers` holds."""
        return len(self.elements)

    @classmethod
    def of(cls, value: Node) -> ComputedFactor:
        """What a value (n, k) is made of; UnmatchedError naming the first node that is something else."""
        n, k = value.shape
        reader = _Reader()
        whole = (Place(N, 1, n), Place(K, 1, k))
        reader.read(value, whole, 0)
        numbers = max(reader.leaves.values(), key=lambda leaf: leaf.length, default=None)
        if numbers is None or numbers.length < 2 or k % numbers.length:
            raise _refused(value, "is not made of numbers along k")
        packed = k // numbers.length
        if any(place.block * place.size > packed for place in reader.counted):
            raise _refused(value, "follows its place")
        elements = tuple(reader.read(value, whole, at) for at in range(packed))
        sides = tuple(leaf for leaf in reader.leaves.values() if leaf is not numbers)
        if len(numbers.along(N)) != 1 or any(not _is_side(leaf, k, packed) for leaf in sides):
            raise _refused(value, "is made of several tensors along k")
        piece = PIECE_BYTES // ITEM_BYTES[numbers.node.dtype] * packed
        scale, elements = _without_scale([leaf for leaf in sides if leaf.group % piece == 0], elements)
        return cls(numbers, tuple(leaf for leaf in sides if leaf is not scale), scale, elements)


def _without_scale(scales: Sequence[Leaf], elements: tuple[Node, ...]) -> tuple[Leaf | None, tuple[Node, ...]]:
    """One of these that all elements are multiplied by, and what of; each is read in no other place."""
    for scale in scales:
        others = [_other_factor(element, scale.element) for element in elements]
        inner = tuple(other for other in others if other is not None)
        if len(inner) == len(elements) and not any(node is scale.element for node in nodes_of(inner)):
            return scale, inner
    return None, elements


def _other_factor(product: Node, factor: Node) -> Node | None:
    if product.op != "mul" or all(each is not factor for each in product.inputs):
        return None
    return next((each for each in product.inputs if each is not factor), None)


def _is_side(leaf: Leaf, k: int, packed: int) -> bool:
    """Whether it has one number for each group of neighbours along k, or for all."""
    groups = [place for place in leaf.places if place is not None and place.axis == K]
    whole = all(place.block * place.size == k and place.block % (FEWEST * packed) == 0 for place in groups)
    return len(groups) <= 1 and whole and len(leaf.along(N)) <= 1


def _refused(node: Node, why: str) -> UnmatchedError:
    return UnmatchedError(f"{node.where} {why}", operation=node.where)


@dataclass
class _Reader:
    """The function of one element, node by node, and the leaves that it comes to."""

    build: GraphBuilder = field(default_factory=GraphBuilder)
    leaves: dict[tuple[int, Places], Leaf] = field(default_factory=dict)
    counted: set[Place] = field(default_factory=set)
    known: dict[tuple[int, Places, int], Node] = field(default_factory=dict)

    def read(self, node: Node, places: Places, at: int) -> Node:
        """The element of a value, `at` of the neighbours that one number holds."""
        key = id(node), places, at
        if key not in self.known:
            self.known[key] = self._read(node, places, at)
        return self.known[key]

    def _read(self, node: Node, places: Places, at: int) -> Node:
        if node.op in IN_MEMORY:
            return self._leaf(node, places)
        if node.op == "constant":
            return self.build.constant(Constant.of(node).value, node.dtype)
        if node.op == "iota" and (place := places[Iota.of(node).dim]) is not None and place.axis == K:
            self.counted.add(place)
            return self.build.constant(at // place.block % place.size, node.dtype)
        if node.op == "take":
            return self._taken(node, places)
        if node.op == "reshape":
            (inner,) = node.inputs
            return self.read(inner, _before_reshape(node, places), at)
        if not node.is_pointwise:
            raise _refused(node, f"({node.op}) is not work on single elements of a factor")
        inputs = [self.read(child, _aligned(child.shape, places), at) for child in node.inputs]
        return self.build(node.op, *inputs, dtype=node.dtype)

    def _leaf(self, node: Node, places: Places) -> Node:
        if (id(node), places) not in self.leaves:
            element = Node("input", (), (), node.dtype, NONE)
            self.leaves[id(node), places] = Leaf(node, places, element)
        return self.leaves[id(node), places].element

    def _taken(self, node: Node, places: Places) -> Node:
        """An element of a tensor at the element's own coordinates, as `stack` and `cat` take it."""
        source, *steps = node.inputs
        found = list[Place | None]()
        for size, step in zip(source.shape, steps, strict=True):
            own = step.op == "iota" and _aligned(step.shape, places)[Iota.of(step).dim]
            if size > 1 and (not own or own.size != size):
                raise _refused(node, "takes elements from elsewhere")
            found.append(own if size > 1 and own else None)
        return self._leaf(source, tuple(found))


def _aligned(shape: Shape, places: Places) -> Places:
    """Those of a value that is broadcast to what has these places."""
    last = places[len(places) - len(shape) :]
    return tuple(None if size == 1 else place for size, place in zip(shape, last, strict=True))


def _before_reshape(node: Node, places: Places) -> Places:
    """The places of what is reshaped: dimensions that are merged or split lie along one of the factor's."""
    (inner,) = node.inputs
    found: list[Place | None] = [None] * len(inner.shape)
    for outer, within in dimension_groups(node.shape, inner.shape) or []:
        own = [place for dim in outer if (place := places[dim]) is not None]
        if not within or not own:
            continue
        if len({place.axis for place in own}) > 1 or not _are_neighbours(own):
            raise _refused(node, "merges rows of a factor")
        block = own[-1].block
        for dim in reversed(within):
            found[dim] = replace(own[-1], block=block, size=inner.shape[dim])
            block *= inner.shape[dim]
    return tuple(found)


def _are_neighbours(places: Sequence[Place]) -> bool:
    return all(a.block == b.block * b.size for a, b in zip(places, places[1:], strict=False))

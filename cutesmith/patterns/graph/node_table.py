"""The nodes of a graph that is being built: each request for an equal node returns the same one."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import NONE, Attributes, Constant, Input, Iota, Number, Stored, View, Viewed
from cutesmith.patterns.graph.dtypes import compute_dtype, is_float, wrapped
from cutesmith.patterns.graph.nodes import Argument, Node, Origin, in_memory
from cutesmith.patterns.graph.shapes import Shape

IN_MEMORY = frozenset({"input", "stored"})
"""Operations whose values lie in device memory, and can be seen through views."""

PRODUCTS = frozenset({"contract"})


class NodeTable:
    """Makes nodes and rewrites nothing; equal requests return the same one (hash-consing).

    `origin` is stamped on each new one.
    """

    def __init__(self) -> None:
        self.origin = Origin()
        self._nodes: dict[Any, Node] = {}
        self._order: dict[int, int] = {}
        """How many nodes were made before each, by its id."""
        self.slices: dict[int, tuple[Node, int, int]] = {}
        """What a function sliced, by the id of the result: the value, the dimension, the first element."""
        self.joined: dict[int, tuple[int, list[tuple[int, Node]]]] = {}
        """What lies side by side in a value, by its id: the dimension, and each piece behind the place of its start."""
        self.states: dict[int, tuple[Node, int, int]] = {}
        """The states of recurrences that became scans, by their ids: the scan, its dimension, the place along it."""
        self.rerolled = False
        """Whether steps of a loop became one value."""
        self.joins_rounds = True
        """Whether rounds of doubled shifts become a scan."""
        self.factors: dict[int, Node] = {}
        """Values that products read from memory, by their ids and by those of what they are reshapes of."""
        self.reshaped: dict[int, list[Node]] = {}
        """The values that a computed one is a reshape of, by its id."""
        self.permuted: dict[int, tuple[Node, Sequence[int]]] = {}
        """The value that another one is a transpose of, and its dimensions in that order, by the id of the other."""
        self._viewed: dict[tuple[Any, ...], tuple[Node, Node]] = {}

    def node(self, op: str, inputs: Sequence[Node], shape: Shape, dtype: str, attrs: Attributes = NONE) -> Node:
        """The node itself, without any rewriting."""
        key = _node_key(op, inputs, shape, dtype, attrs)
        if key not in self._nodes:
            self._nodes[key] = made = Node(op, tuple(inputs), shape, dtype, attrs, self.origin)
            self._order[id(made)] = len(self._order)
            if op == "contract":
                self._viewed.clear()
                for factor in itertools.chain.from_iterable(map(in_memory, inputs)):
                    self.factors |= {id(each): factor for each in (factor, *self.reshaped.get(id(factor), ()))}
        return self._nodes[key]

    def interned(self, node: Node) -> Node:
        """The first node of those that were made elsewhere and are equal to this one."""
        return self._nodes.setdefault(_node_key(node.op, node.inputs, node.shape, node.dtype, node.attrs), node)

    def reaches(self, node: Node | None, other: Node | None) -> bool:
        """Whether a value is made of another one."""
        first = self._order.get(id(other), 0)
        stack, seen = list(self.parts_of(node)) if node else [], set[int]()
        while stack:
            each = stack.pop()
            if each is other:
                return True
            if id(each) not in seen and self._order.get(id(each), first) >= first:  # else it was made before
                seen.add(id(each))
                stack += self.parts_of(each)
        return False

    def parts_of(self, node: Node) -> Sequence[Node]:
        """What a value is made of: its inputs, or the values that were joined in it."""
        _, pieces = self.joined.get(id(node), (0, []))
        return [piece for _, piece in pieces] or node.inputs

    def slice_of(self, sliced: Node, source: Node, dim: int, first: int) -> Node:
        """The slice, of which is remembered what it is a slice of."""
        if sliced is not source:
            self.slices[id(sliced)] = source, dim, first
        if sliced.op == source.op == "expand":
            inner, before = sliced.inputs[0], source.inputs[0]
            own = dim - len(source.shape) + len(before.shape)
            if own >= 0 and before.shape[own] > 1:
                self.slice_of(inner, before, own, first)
        return sliced

    def viewed_once(self, view: tuple[Any, ...], node: Node, make: Callable[[], Node]) -> Node:
        """What `make` gives for a view of a node, made once as long as no other product is read.

        A value that many others read would else be viewed again for each way to it.
        """
        key = (id(node), *view)
        if key not in self._viewed:
            self._viewed[key] = node, make()
        return self._viewed[key][1]

    def argument(self, index: int, argument: Argument) -> Node:
        """The argument tensor in this place, as it is."""
        attrs = Input.whole(index, argument.shape, argument.stride)
        return self.node("input", (), argument.shape, argument.dtype, attrs)

    def constant(self, value: Number, dtype: str, shape: Shape = ()) -> Node:
        """A number of the arithmetic class of `dtype` (bfloat16 constants are float32: PyTorch does not round them)."""
        kind = compute_dtype(dtype)
        plain = float(value) if is_float(kind) else bool(value) if kind == "bool" else wrapped(int(value), kind)
        return self.expand(self.node("constant", (), (), kind, Constant(plain)), shape)

    def iota(self, shape: Shape, dim: int) -> Node:
        """The coordinate along `dim` (int64)."""
        return self.node("iota", (), shape, "int64", Iota(dim))

    def expand(self, node: Node, shape: Shape) -> Node:
        """The value stretched to `shape`."""
        if node.op == "expand":
            node = node.inputs[0]
        return node if node.shape == shape else self.node("expand", (node,), shape, node.dtype)

    def materialise(self, node: Node) -> Node:
        """A stretched value as a node of its full shape."""
        if node.op != "expand":
            return node
        source = node.inputs[0]
        if source.is_pointwise and len(source.shape) > 0:
            return self.node(source.op, source.inputs, node.shape, source.dtype, source.attrs)
        return self.node("cast", (source,), node.shape, node.dtype)

    @contextlib.contextmanager
    def as_of(self, node: Node) -> Iterator[None]:
        """Within it, new nodes come from where this one does: it seen otherwise is the same step of the function."""
        before, self.origin = self.origin, node.origin
        try:
            yield
        finally:
            self.origin = before

    def with_inputs(self, node: Node, inputs: Sequence[Node], shape: Shape) -> Node:
        """The same pointwise operation on other inputs, which broadcast to the shape."""
        plain = [each.inputs[0] if each.op == "expand" else each for each in inputs]
        with self.as_of(node):
            return self.node(node.op, plain, shape, node.dtype, node.attrs)

    def view_in_memory(self, node: Node, code: View, view: Callable[[torch.Tensor], torch.Tensor]) -> Node | None:
        """`node` (input or stored) seen through `view`, which `code` says; None when that would need a copy."""
        given = Viewed.of(node)
        with _disable_current_modes():
            base = torch.empty_strided(node.shape, given.stride, device="meta")
            try:
                seen = view(base)
            except RecursionError:  # it says nothing of the view
                raise
            except (RuntimeError, ValueError):
                return None
            shape, stride, offset = tuple(seen.shape), tuple(seen.stride()), given.offset + int(seen.storage_offset())
        views = () if (shape, stride, offset) == (*given.root, 0) else (*given.views, code)
        attrs = replace(given, stride=stride, views=views, offset=offset)
        return self.node(node.op, node.inputs, shape, node.dtype, attrs)

    def stored(self, node: Node) -> Node:
        """The value in device memory, where an earlier launch leaves it."""
        node = self.materialise(node)
        if node.op in IN_MEMORY:
            return node
        return self.node("stored", (self.storable(node),), node.shape, node.dtype, Stored.whole(node.shape))

    def storable(self, node: Node) -> Node:
        """The value itself, refused where no kernel stores it: the GPU's conversion to float8_e5m2 has no infinity."""
        if node.dtype == "float8_e5m2":
            raise self.unmatched("gives float8_e5m2, which is only read: the GPU's conversion to it has no infinity")
        return node

    def unmatched(self, message: str) -> UnmatchedError:
        """The error that names the operation now being lowered."""
        return UnmatchedError(
            f"{self.origin}: {message}", operation=str(self.origin), hint="a model is needed for this function"
        )


def is_made_of(node: Node, operations: frozenset[str]) -> bool:
    """Whether one of these operations is part of the value, of what is computed after the launches before it."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if each.op in operations:
            return True
        if id(each) not in seen and each.op not in IN_MEMORY:
            seen.add(id(each))
            stack.extend(each.inputs)
    return False


def _node_key(op: str, inputs: Sequence[Node], shape: Shape, dtype: str, attrs: Attributes) -> tuple[object, ...]:
    said = () if attrs is NONE else (type(attrs), *map(_key, vars(attrs).values()))
    return (op, *map(id, inputs), shape, dtype, said)


def _key(value: object) -> object:
    """Equal for equal values of one type; zeros of different sign differ, NaN equals itself."""
    if isinstance(value, float):
        return (float, math.copysign(1.0, value), repr(value))
    return (type(value), value)

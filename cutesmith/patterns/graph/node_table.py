"""Makes graph nodes, equal ones once (hash-consing): the part of building that rewrites nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.dtypes import compute_dtype, is_float
from cutesmith.patterns.graph.nodes import NONE, Argument, Attributes, Constant, Input, Iota, Node, Number
from cutesmith.patterns.graph.shapes import Shape


class NodeTable:
    """Equal requests return the same node. `origin` is stamped on each new one for messages."""

    def __init__(self) -> None:
        self.origin = ""
        self._nodes: dict[Any, Node] = {}

    def node(self, op: str, inputs: Sequence[Node], shape: Shape, dtype: str, attrs: Attributes = NONE) -> Node:
        """The node itself, without any rewriting."""
        key = (op, tuple(id(node) for node in inputs), shape, dtype, type(attrs), *map(_key, vars(attrs).values()))
        if key not in self._nodes:
            self._nodes[key] = Node(op, tuple(inputs), shape, dtype, attrs, self.origin)
        return self._nodes[key]

    def argument(self, index: int, argument: Argument) -> Node:
        """The argument tensor in this place, as it is."""
        attrs = Input.whole(index, argument.shape, argument.stride)
        return self.node("input", (), argument.shape, argument.dtype, attrs)

    def constant(self, value: Number, dtype: str, shape: Shape = ()) -> Node:
        """A number of the arithmetic class of `dtype` (bfloat16 constants are float32: PyTorch does not round them)."""
        kind = compute_dtype(dtype)
        plain = float(value) if is_float(kind) else bool(value) if kind == "bool" else int(value)
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

    def view_input(self, node: Node, code: str, view: Callable[[torch.Tensor], torch.Tensor]) -> Node | None:
        """`node` (an input) seen through `view`, whose source is `code`; None when that would need a copy."""
        given = Input.of(node)
        with _disable_current_modes():
            base = torch.empty_strided(node.shape, given.stride, device="meta")
            try:
                seen = view(base)
            except (RuntimeError, ValueError):
                return None
            shape, stride, offset = tuple(seen.shape), tuple(seen.stride()), given.offset + int(seen.storage_offset())
        views = () if (shape, stride, offset) == (*given.root, 0) else (*given.views, code)
        attrs = replace(given, stride=stride, views=views, offset=offset)
        return self.node("input", (), shape, node.dtype, attrs)

    def unmatched(self, message: str) -> UnmatchedError:
        """The error that names the operation now being lowered."""
        return UnmatchedError(
            f"{self.origin}: {message}", operation=self.origin, hint="a model is needed for this function"
        )


def _key(value: object) -> object:
    """Equal for equal values of one type; zeros of different sign differ, NaN equals itself."""
    if isinstance(value, float):
        return (float, math.copysign(1.0, value), repr(value))
    return (type(value), value)

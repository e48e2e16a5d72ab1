"""Builds graph nodes: hash-consed (equal expressions are one node), constants folded, reshapes kept out of the way.

Conventions beyond those of `graph.py`:
- the tensor inputs of a pointwise node are of one arithmetic class: float16/bfloat16/float32 mixed freely, or all
  float64, or all of the same integer type or bool; constants and run-time scalars are never float16 or bfloat16;
- `expand` is internal to building: it says how far a value is stretched, arithmetic looks through it, and what is left
  of it at an output becomes a `cast` to the same type at the larger shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.building import folding
from cutesmith.patterns.building.dtypes import compute_dtype, is_float, same_class, widens
from cutesmith.patterns.building.shapes import Shape, broadcast, insert_ones, is_squeeze, kept_positions, squeezed_gaps
from cutesmith.patterns.tracing.graph import Node

Number = int | float | bool

COMPARISONS = frozenset(
    ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf"]
)


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return ("float", math.copysign(1.0, value), repr(value))
    if isinstance(value, Mapping):
        return tuple(sorted((name, _key(item)) for name, item in value.items()))
    return (type(value).__name__, value)


class GraphBuilder:
    """Makes nodes; equal requests return the same node. `origin` is stamped on each for messages."""

    def __init__(self) -> None:
        self.origin = ""
        self._nodes: dict[Any, Node] = {}

    def node(self, op: str, inputs: Sequence[Node], shape: Shape, dtype: str, **attrs: Any) -> Node:
        """The node itself, without any rewriting."""
        key = (op, tuple(id(node) for node in inputs), shape, dtype, _key(attrs))
        if key not in self._nodes:
            self._nodes[key] = Node(op, tuple(inputs), shape, dtype, MappingProxyType(attrs), self.origin)
        return self._nodes[key]

    # Leaves

    def constant(self, value: Number, dtype: str, shape: Shape = ()) -> Node:
        """A number of the arithmetic class of `dtype` (bfloat16 constants are float32: PyTorch does not round them)."""
        kind = compute_dtype(dtype)
        plain = float(value) if is_float(kind) else bool(value) if kind == "bool" else int(value)
        return self.expand(self.node("constant", (), (), kind, value=plain), shape)

    def iota(self, shape: Shape, dim: int) -> Node:
        """The coordinate along `dim` (int64)."""
        return self.node("iota", (), shape, "int64", dim=dim)

    # Arithmetic

    def __call__(self, op: str, *operands: Node | Number, dtype: str | None = None) -> Node:
        """A pointwise operation; numbers become constants of the operands' class; `dtype` is the result's."""
        nodes = self._operands(op, operands)
        if dtype is None:
            dtype = "bool" if op in COMPARISONS else _result_dtype(nodes[1:] if op == "where" else nodes)
        return self._pointwise(op, nodes, dtype)

    def where(self, condition: Node, then: Node | Number, other: Node | Number, dtype: str | None = None) -> Node:
        """`then` where `condition` holds, else `other`."""
        return self("where", condition, then, other, dtype=dtype)

    def cast(self, node: Node, dtype: str) -> Node:
        """Converts to `dtype`; a float's cast through a wider float is dropped."""
        if node.dtype == dtype:
            return node
        if node.op == "expand":
            return self.expand(self.cast(node.inputs[0], dtype), node.shape)
        if node.op == "cast" and is_float(dtype) and widens(node.inputs[0].dtype, node.dtype):
            return self.cast(node.inputs[0], dtype)
        return self._pointwise("cast", [node], dtype)

    def operand(self, node: Node, dtype: str) -> Node:
        """`node` ready for arithmetic in the class of `dtype`: cast only when the class differs."""
        return node if same_class(node.dtype, dtype) else self.cast(node, compute_dtype(dtype))

    def retype(self, node: Node, dtype: str) -> Node:
        """The same value labelled `dtype`: a new label for unrounded arithmetic of one class, a cast otherwise."""
        if node.dtype == dtype:
            return node
        if node.op in ("expand", "reshape"):
            return self.node(node.op, (self.retype(node.inputs[0], dtype),), node.shape, dtype, **node.attrs)
        if node.op in ("constant", "scalar") and same_class(node.dtype, dtype):
            return node
        leaf = node.op in ("cast", "input", "iota", "constant", "scalar", "gather")
        if leaf or not same_class(node.dtype, dtype) or not is_float(dtype):
            return self.cast(node, dtype)
        return self.node(node.op, node.inputs, node.shape, dtype, **node.attrs)

    def _operands(self, op: str, operands: Sequence[Node | Number]) -> list[Node]:
        values = operands[1:] if op == "where" else operands
        kind = next((node.dtype for node in values if isinstance(node, Node)), None)
        if kind is None:
            kind = "float32" if any(isinstance(value, float) for value in values) else "int64"
        return [node if isinstance(node, Node) else self.constant(node, kind) for node in operands]

    def _pointwise(self, op: str, nodes: Sequence[Node], dtype: str) -> Node:
        logical = broadcast([node.shape for node in nodes])
        inputs = [self._strip(node, op) for node in nodes]
        folded = folding.fold(self, op, inputs, dtype)
        if folded is not None:
            return self.expand(folded, logical)
        sunk = self._sink_reshape(op, inputs, dtype)
        if sunk is None:
            sunk = self.node(op, inputs, broadcast([node.shape for node in inputs]), dtype)
        return self.expand(sunk, logical)

    def _strip(self, node: Node, op: str) -> Node:
        while node.op == "expand" or (op != "cast" and node.op == "cast" and widens(node.inputs[0].dtype, node.dtype)):
            node = node.inputs[0]
        return node

    def _sink_reshape(self, op: str, inputs: list[Node], dtype: str) -> Node | None:
        """Computes on un-squeezed values and squeezes the result, so that reduced dimensions stay aligned."""
        for node in inputs:
            if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
                shape = broadcast([each.shape for each in inputs])
                return self.reshape(self._unsqueezed(op, inputs, dtype, node), shape)
        return self._before_reshape(op, inputs, dtype)

    def _before_reshape(self, op: str, inputs: list[Node], dtype: str) -> Node | None:
        """Computes on the value before a reshape, when the other operands can be seen in its shape for free."""
        from cutesmith.patterns.building.views import reshape_broadcast

        reshaped = next((node for node in inputs if node.op == "reshape"), None)
        shape = broadcast([node.shape for node in inputs])
        if reshaped is None or reshaped.shape != shape:
            return None
        source = reshaped.inputs[0]
        sides = [source if node is reshaped else reshape_broadcast(self, node, shape, source.shape) for node in inputs]
        if any(side is None or (side is not source and side.op == "reshape") for side in sides):
            return None
        return self.reshape(self._pointwise(op, [side for side in sides if side is not None], dtype), shape)

    def _unsqueezed(self, op: str, inputs: list[Node], dtype: str, squeezed: Node) -> Node:
        source = squeezed.inputs[0]
        gaps = [gap for gap in squeezed_gaps(source.shape, squeezed.shape) if gap < len(squeezed.shape)]
        aligned = [source if node is squeezed else self.reshape(node, insert_ones(node.shape, gaps)) for node in inputs]
        return self._pointwise(op, aligned, dtype)

    # Reductions

    def reduce(self, op: str, node: Node, dims: Sequence[int], dtype: str, **attrs: Any) -> Node:
        """Reduces `dims` to size 1; the reduced dimensions stay."""
        node = self._strip_for_reduction(node, dims)
        rank = len(node.shape)
        dims = tuple(sorted(dim % rank for dim in dims)) if rank else ()
        if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape) and op not in ("argmax", "argmin"):
            return self._reduce_squeezed(op, node, dims, dtype, attrs)
        shape = tuple(1 if dim in dims else size for dim, size in enumerate(node.shape))
        return self.node(op, (node,), shape, dtype, dims=dims, **attrs)

    def _reduce_squeezed(self, op: str, node: Node, dims: Shape, dtype: str, attrs: Mapping[str, Any]) -> Node:
        source = node.inputs[0]
        kept = kept_positions(source.shape, node.shape)
        reduced = self.reduce(op, source, [kept[dim] for dim in dims], dtype, **attrs)
        return self.reshape(reduced, tuple(1 if dim in dims else size for dim, size in enumerate(node.shape)))

    def _strip_for_reduction(self, node: Node, dims: Sequence[int]) -> Node:
        node = self.materialise(node)
        while node.op == "cast" and widens(node.inputs[0].dtype, node.dtype) and node.inputs[0].shape == node.shape:
            node = node.inputs[0]
        return node

    def drop_dims(self, node: Node, dims: Sequence[int]) -> Node:
        """The value without `dims`, each of size 1."""
        gone = {dim % len(node.shape) for dim in dims} if node.shape else set()
        return self.reshape(node, tuple(size for dim, size in enumerate(node.shape) if dim not in gone))

    def gather(self, node: Node, index: Node, dim: int) -> Node:
        """`node` at `index` along `dim`, where `index` has size 1."""
        node, index = self.materialise(node), self.materialise(index)
        shape = tuple(1 if at == dim else size for at, size in enumerate(node.shape))
        return self.node("gather", (node, index), shape, node.dtype, dim=dim)

    # Shapes

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
            return self.node(source.op, source.inputs, node.shape, source.dtype, **source.attrs)
        return self.node("cast", (source,), node.shape, node.dtype)

    def reshape(self, node: Node, shape: Shape) -> Node:
        """The same elements in row-major order, pushed up to the arguments where that is possible."""
        from cutesmith.patterns.building.views import push_reshape

        return push_reshape(self, node, shape)

    def unmatched(self, message: str) -> UnmatchedError:
        """The error that names the operation now being lowered."""
        return UnmatchedError(
            f"{self.origin}: {message}", operation=self.origin, hint="a model is needed for this function"
        )


def _result_dtype(nodes: Sequence[Node]) -> str:
    dtypes = [node.dtype for node in nodes]
    tensors = [node.dtype for node in nodes if node.op not in ("constant", "scalar")]
    return max(
        tensors or dtypes,
        key=(["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]).index,
    )

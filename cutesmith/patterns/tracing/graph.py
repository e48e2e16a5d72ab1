"""The small graph that a traced `reference_fn` is lowered to: what the patterns match and the templates print.

A graph is a DAG of `Node`s over row-major logical shapes. Pointwise nodes broadcast their inputs to their own shape
(right-aligned, size 1 stretches). Reductions keep the reduced dimensions as size 1, so that ranks stay aligned.
Arithmetic on floats is meant in float32 (float64 for float64 inputs); a node's `dtype` is the type PyTorch gives it,
and rounding to it is only done where a value is stored or an explicit `cast` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

UNARY = frozenset(
    "neg abs exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc normcdf sigmoid floor ceil round trunc sign "
    "logical_not bitwise_not isnan isinf cast".split()
)
BINARY = frozenset(
    "add sub mul div floor_div trunc_div fmod remainder pow atan2 minimum maximum "
    "eq ne lt le gt ge logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor shift_left shift_right".split()
)
POINTWISE = UNARY | BINARY | {"where"}
"""Pointwise operations. `minimum`/`maximum` carry NaN, `round` is half-to-even, `normcdf` is Φ(x) = erfc(-x/√2)/2,
`div` is true division (floats), `where` is (condition, then, else), `cast` goes to the node's dtype."""

REDUCTIONS = frozenset("sum prod max min argmax argmin any all mean var".split())
"""Reductions over `attrs["dims"]` (non-negative, sorted); `var` has `attrs["correction"]`; `argmax`/`argmin` give the
first index in the flattened reduced dimensions (int64) and treat NaN as the extreme, as PyTorch does."""

LEAVES = frozenset({"input", "scalar", "constant", "sized", "iota"})
"""`input`: attrs `index` (of the argument) and `views`; `scalar`: a Python number passed at run time, attrs `index`;
`constant`: attrs `value`; `sized`: a number that follows the sizes of arguments, attrs `law` (a `sizes.SizeLaw`) and
`value` (at the traced sizes); `iota`: the coordinate along attrs `dim` of its shape (int64)."""

OTHERS = frozenset({"reshape", "gather"})
"""`reshape`: same elements in row-major order; `gather`: inputs (x, index), along attrs `dim`, where index has
size 1 there."""


@dataclass(frozen=True, eq=False)
class Node:
    """One value of the graph: operation, inputs, logical shape, torch dtype name ("bfloat16", "int64", "bool", …)."""

    op: str
    inputs: tuple[Node, ...]
    shape: tuple[int, ...]
    dtype: str
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    origin: str = ""  # the ATen operation and source line it comes from, for messages

    @property
    def is_pointwise(self) -> bool:
        """Whether the node maps elements to elements."""
        return self.op in POINTWISE

    @property
    def is_reduction(self) -> bool:
        """Whether the node reduces dimensions to size 1."""
        return self.op in REDUCTIONS


@dataclass(frozen=True)
class Argument:
    """One argument of `reference_fn`: a tensor (shape, stride in elements, dtype) or a Python scalar (`value`)."""

    name: str
    kind: str  # "tensor" or "scalar"
    dtype: str  # torch dtype name; "int", "float" or "bool" for scalars
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    value: int | float | bool | None = None


@dataclass(frozen=True)
class View:
    """A view call on an argument that `kernel_fn` makes before the launch, e.g. `.transpose(0, 1)`; free of copies."""

    code: str  # Python source applied to the tensor: "{}.transpose(0, 1)"


@dataclass(frozen=True)
class Graph:
    """A whole traced function: its arguments, its outputs, and whether it returns a bare tensor or a tuple.

    An `input` node's attrs: `index` (argument), `views` (tuple of `View`, applied in order), `stride` (of the viewed
    tensor, in elements). Outputs carry shape and dtype; `output_strides` are those PyTorch gives them.
    """

    arguments: tuple[Argument, ...]
    outputs: tuple[Node, ...]
    output_strides: tuple[tuple[int, ...], ...]
    returns_tuple: bool
    fixed_shapes: bool = False
    """Views, or constants without a law, carry the traced sizes: the graph holds for these shapes only."""

    def nodes(self) -> Iterator[Node]:
        """Every node once, inputs before users."""
        seen: set[int] = set()
        stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(self.outputs)]
        while stack:
            node, ready = stack.pop()
            if id(node) in seen:
                continue
            if ready:
                seen.add(id(node))
                yield node
            else:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(node.inputs))


def with_nodes(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    """The graph with `change` of each node, whose inputs are changed already."""
    return _rebuilt(graph, change, {})


def with_values(graph: Graph, values: Mapping[int, Node]) -> Graph:
    """The graph with other nodes in place of those whose id is in `values`, and what becomes of their users."""
    return _rebuilt(graph, lambda node: node, values)


def _rebuilt(graph: Graph, change: Callable[[Node], Node], known: Mapping[int, Node]) -> Graph:
    done = dict(known)
    for node in (node for node in graph.nodes() if id(node) not in known):
        inputs = tuple(done[id(child)] for child in node.inputs)
        same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        done[id(node)] = change(node if same else replace(node, inputs=inputs))
    return replace(graph, outputs=tuple(done[id(node)] for node in graph.outputs))

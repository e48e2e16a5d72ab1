"""Lowerings of reductions: sums, extremes, truth, moments and norms over any dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cutesmith.patterns.graph.attributes import Number
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.lowering.dispatch import Lowered, Lowering, Rule, lowers

Dims = int | Sequence[int] | None


def all_dims(x: Node, dims: Dims) -> tuple[int, ...]:
    """The dimensions, non-negative; None and [] mean every one."""
    rank = len(x.shape)
    if dims is None:
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return tuple(sorted(dim % rank for dim in listed)) if listed and rank else tuple(range(rank))


def reduced(low: Lowering, op: str, x: Node, dims: Dims, index: int = 0) -> Node:
    """`x` reduced to the shape of result `index` (with or without the reduced dimensions)."""
    node = low.build.reduce(op, x, all_dims(x, dims), low.dtypes[index])
    return low.build.reshape(node, tuple(low.shapes[index]))


def _arithmetic(op: str) -> Rule:
    return lambda low, x, dim=None, keepdim=False, *, dtype=None: reduced(low, op, low.operand(x), dim)


def _extreme(low: Lowering, op: str, x: Node, dims: Dims, index: int = 0) -> Node:
    return reduced(low, op if x.dtype != "bool" else {"max": "any", "min": "all"}[op], x, dims, index)


@lowers("aminmax")
def _both_extremes(low: Lowering, x: Node, *, dim: int | None = None, keepdim: bool = False) -> tuple[Node, Node]:
    return _extreme(low, "min", x, dim), _extreme(low, "max", x, dim, 1)


def _extreme_with_index(op: str) -> Rule:
    def with_index(low: Lowering, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
        ordered = low.build.cast(x, "int32") if x.dtype == "bool" else x
        return _extreme(low, op, x, dim), reduced(low, f"arg{op}", ordered, dim, 1)

    return with_index


def _truth(op: str) -> Rule:
    def truth(low: Lowering, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
        node = low.build.reduce(op, low.truth(x), all_dims(x, dim), "bool")
        return low.build.reshape(node, tuple(low.shapes[0]))

    return truth


for _op in ("sum", "mean", "prod"):
    lowers(_op)(_arithmetic(_op))
for _op in ("max", "min"):
    lowers(f"a{_op}", f"{_op}.default")(lambda low, x, dim=None, keepdim=False, op=_op: _extreme(low, op, x, dim))
    lowers(f"{_op}.dim")(_extreme_with_index(_op))
    lowers(f"arg{_op}")(lambda low, x, dim=None, keepdim=False, op=f"arg{_op}": reduced(low, op, x, dim))
for _op in ("any", "all"):
    lowers(_op)(_truth(_op))


# Moments


def _moment(root: bool, with_mean: bool) -> Rule:
    """var over `dim`, perhaps as std or beside the mean; NaN or Inf where not more elements than `correction` are."""

    def moment(
        low: Lowering, x: Node, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
    ) -> Lowered:
        freedom = 1.0 if correction is None else float(correction)
        kind = low.kind if root else low.dtype  # a root is rounded once, not its square, too
        value = low.build.reduce("var", x, all_dims(x, dim), kind, correction=freedom)
        value = low.build.reshape(low.build("sqrt", value, dtype=low.dtype) if root else value, tuple(low.shapes[0]))
        return (value, reduced(low, "mean", x, dim, 1)) if with_mean else value

    return moment


for _op, _root in (("var", False), ("std", True)):
    lowers(f"{_op}.correction")(_moment(_root, with_mean=False))
    lowers(f"{_op}_mean.correction")(_moment(_root, with_mean=True))


# Norms and logsumexp


@lowers("linalg_vector_norm")
def _vector_norm(
    low: Lowering, x: Node, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    norm = _norm(low, low.operand(x), ord, all_dims(x, dim))
    return low.build.reshape(norm, tuple(low.shapes[0]))


def _norm(low: Lowering, x: Node, order: Number, axes: tuple[int, ...]) -> Node:
    """The p-norm over `axes`, which stay as size 1 (p: 0, 1, 2, ±inf, any number)."""
    build = low.build
    if order == 2:
        return build("sqrt", build.reduce("sum", build("mul", x, x, dtype=low.kind), axes, low.kind), dtype=low.dtype)
    if order == 0:
        return build.reduce("sum", build.cast(build("ne", x, 0), low.kind), axes, low.dtype)
    size = build("abs", x)
    if math.isinf(order):
        return build.reduce("max" if order > 0 else "min", size, axes, low.dtype)
    if order == 1:
        return build.reduce("sum", size, axes, low.dtype)
    total = build.reduce("sum", build("pow", size, low.operand(order), dtype=low.kind), axes, low.kind)
    return build("pow", total, build("div", 1.0, low.operand(order)), dtype=low.dtype)


@lowers("logsumexp")
def _logsumexp(low: Lowering, x: Node, dim: Dims, keepdim: bool = False) -> Node:
    """max + log(sum(exp(x - max))); a row whose maximum is infinite has that as its result."""
    build, axes, x = low.build, all_dims(x, dim), low.operand(x)
    top = build.reduce("max", x, axes, low.kind)
    total = build.reduce("sum", build("exp", build("sub", x, top)), axes, low.kind)
    finite = build("add", build("log", total), top)
    return build.reshape(build("where", build("isinf", top), top, finite, dtype=low.dtype), tuple(low.shapes[0]))

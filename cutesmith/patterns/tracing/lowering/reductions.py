"""Lowerings of reductions: sums, extremes, truth, moments and norms over any dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Node, Number
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers

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


def _register_arithmetic(aten: str) -> None:
    @lowers(aten)
    def arithmetic(low: Lowering, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
        return reduced(low, aten, low.operand(x), dim)


for _op in ("sum", "mean", "prod"):
    _register_arithmetic(_op)


@lowers("nansum")
def _nansum(low: Lowering, x: Node, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Node:
    x = low.operand(x)
    zeroed = low.build("where", low.build("isnan", x), 0.0, x) if is_float(x.dtype) else x
    return reduced(low, "sum", zeroed, dim)


def _extreme(low: Lowering, op: str, x: Node, dims: Dims, index: int = 0) -> Node:
    if x.dtype == "bool":
        return reduced(low, "any" if op == "max" else "all", x, dims, index)
    return reduced(low, op, x, dims, index)


def _register_extremes(aten: str, op: str) -> None:
    @lowers(aten)
    def extreme(low: Lowering, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
        return _extreme(low, op, x, dim)


for _op in ("max", "min"):
    _register_extremes(f"a{_op}", _op)
    _register_extremes(f"{_op}.default", _op)


def _register_extreme_with_index(op: str) -> None:
    @lowers(f"{op}.dim")
    def with_index(low: Lowering, x: Node, dim: int, keepdim: bool = False) -> tuple[Node, Node]:
        if x.dtype == "bool":
            raise low.build.unmatched("takes the index of an extreme of booleans")
        return _extreme(low, op, x, dim), _arg(low, f"arg{op}", x, dim, index=1)

    @lowers(f"{op}.other")
    def of_two(low: Lowering, a: Node, b: Node) -> Node:
        return low.build(f"{op}imum", *low.operands(a, b), dtype=low.dtype)


_register_extreme_with_index("max")
_register_extreme_with_index("min")


@lowers("aminmax")
def _aminmax(low: Lowering, x: Node, *, dim: int | None = None, keepdim: bool = False) -> tuple[Node, Node]:
    return _extreme(low, "min", x, dim, 0), _extreme(low, "max", x, dim, 1)


def _arg(low: Lowering, op: str, x: Node, dims: Dims, index: int = 0) -> Node:
    if not x.shape:
        return low.build.constant(0, "int64")
    return reduced(low, op, x, dims, index)


@lowers("argmax")
def _argmax(low: Lowering, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    return _arg(low, "argmax", x, dim)


@lowers("argmin")
def _argmin(low: Lowering, x: Node, dim: int | None = None, keepdim: bool = False) -> Node:
    return _arg(low, "argmin", x, dim)


def _truth(low: Lowering, op: str, x: Node, dims: Dims) -> Node:
    x = x if x.dtype == "bool" else low.build("ne", x, 0)
    node = low.build.reduce(op, x, all_dims(x, dims), "bool")
    return low.build.reshape(node, tuple(low.shapes[0]))


@lowers("any")
def _any(low: Lowering, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
    return _truth(low, "any", x, dim)


@lowers("all")
def _all(low: Lowering, x: Node, dim: Dims = None, keepdim: bool = False) -> Node:
    return _truth(low, "all", x, dim)


@lowers("count_nonzero")
def _count_nonzero(low: Lowering, x: Node, dim: Dims = None) -> Node:
    x = x if x.dtype == "bool" else low.build("ne", x, 0)
    return reduced(low, "sum", low.build.cast(x, "int64"), dim)


# Moments


def variance(low: Lowering, x: Node, dims: Dims, correction: Number, dtype: str) -> Node:
    """var over `dims`, which stay as size 1; NaN or Inf where there are not more elements than `correction`."""
    axes = all_dims(x, dims)
    if not x.shape:
        raise low.build.unmatched("takes the variance of a single number")
    return low.build.reduce("var", x, axes, dtype, correction=float(correction))


def _correction(unbiased: Any, correction: Number | None) -> Number:
    if isinstance(unbiased, bool):
        return 1 if unbiased else 0
    return 1 if correction is None else correction


def _variance_result(low: Lowering, x: Node, dims: Dims, correction: Number, root: bool) -> Node:
    node = variance(low, x, dims, correction, low.dtypes[0])
    node = low.build("sqrt", node, dtype=low.dtypes[0]) if root else node
    return low.build.reshape(node, tuple(low.shapes[0]))


def _register_variance(name: str, root: bool, with_mean: bool) -> None:
    @lowers(f"{name}.default")
    def of_all(low: Lowering, x: Node, unbiased: bool = True) -> Any:
        return results(low, x, None, _correction(unbiased, None))

    @lowers(f"{name}.dim")
    def of_dims(low: Lowering, x: Node, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Any:
        return results(low, x, dim, _correction(unbiased, None))

    @lowers(f"{name}.correction")
    def corrected(low: Lowering, x: Node, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        return results(low, x, dim, _correction(None, correction))

    def results(low: Lowering, x: Node, dim: Dims, correction: Number) -> Any:
        value = _variance_result(low, x, dim, correction, root)
        return (value, reduced(low, "mean", x, dim, 1)) if with_mean else value


_register_variance("var", root=False, with_mean=False)
_register_variance("std", root=True, with_mean=False)
_register_variance("var_mean", root=False, with_mean=True)
_register_variance("std_mean", root=True, with_mean=True)


# Norms and logsumexp


def vector_norm(low: Lowering, x: Node, order: Number, dims: Dims, dtype: str) -> Node:
    """The p-norm over `dims`, which stay as size 1 (p: 0, 1, 2, ±inf, any number)."""
    build, axes = low.build, all_dims(x, dims)
    if order == 2:
        return build("sqrt", build.reduce("sum", build("mul", x, x), axes, low.kind), dtype=dtype)
    if order == 0:
        return build.reduce("sum", build.cast(build("ne", x, 0), low.kind), axes, dtype)
    size = build("abs", x)
    if math.isinf(order):
        return build.reduce("max" if order > 0 else "min", size, axes, dtype)
    if order == 1:
        return build.reduce("sum", size, axes, dtype)
    total = build.reduce("sum", build("pow", size, low.operand(order)), axes, low.kind)
    return build("pow", total, build("div", 1.0, low.operand(order)), dtype=dtype)


@lowers("linalg_vector_norm")
def _linalg_vector_norm(
    low: Lowering, x: Node, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    return low.build.reshape(vector_norm(low, low.operand(x), ord, dim, low.dtype), tuple(low.shapes[0]))


@lowers("norm")
def _norm(
    low: Lowering, x: Node, p: Number | None = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Node:
    return low.build.reshape(
        vector_norm(low, low.operand(x), 2 if p is None else p, dim, low.dtype), tuple(low.shapes[0])
    )


@lowers("logsumexp")
def _logsumexp(low: Lowering, x: Node, dim: Dims, keepdim: bool = False) -> Node:
    """max + log(sum(exp(x - max))); a row whose maximum is infinite has that as its result."""
    build, axes, x = low.build, all_dims(x, dim), low.operand(x)
    top = build.reduce("max", x, axes, low.kind)
    total = build.reduce("sum", build("exp", build("sub", x, top)), axes, low.kind)
    finite = build("add", build("log", total), top)
    return build.reshape(build("where", build("isinf", top), top, finite, dtype=low.dtype), tuple(low.shapes[0]))

"""What each pointwise operation and reduction of the graph means, as torch functions: the oracle of the patterns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def _normcdf(x: Tensor) -> Tensor:
    return torch.erfc(-x * math.sqrt(0.5)) / 2


def _trunc_div(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


POINTWISE: dict[str, Callable[..., Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in [
            "neg",
            "abs",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "rsqrt",
            "reciprocal",
        ]
    },
    **{
        name: getattr(torch, name)
        for name in ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]
    },
    **{
        name: getattr(torch, name)
        for name in ["erf", "erfc", "sigmoid", "floor", "ceil", "round", "trunc", "sign", "logical_not"]
    },
    **{
        name: getattr(torch, name)
        for name in ["bitwise_not", "isnan", "isinf", "fmod", "remainder", "pow", "atan2", "minimum", "maximum"]
    },
    **{
        name: getattr(torch, name)
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "where"]
    },
    **{name: getattr(torch, name) for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "add", "sub", "mul"]},
    "normcdf": _normcdf,
    "div": torch.true_divide,
    "floor_div": torch.floor_divide,
    "trunc_div": _trunc_div,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
}
"""Every pointwise operation but `cast`, on tensors already of the compute type."""


def _flat_arg(function: Callable[..., Tensor], x: Tensor, dims: tuple[int, ...]) -> Tensor:
    kept = [dim for dim in range(x.ndim) if dim not in dims]
    flat = x.permute(*kept, *dims).reshape(*(x.shape[dim] for dim in kept), -1)
    shape = [1 if dim in dims else size for dim, size in enumerate(x.shape)]
    return function(flat, dim=-1).reshape(shape)


def _prod(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        x = torch.prod(x, dim, keepdim=True)
    return x


def _all(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        x = torch.all(x, dim, keepdim=True)
    return x


def _any(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    for dim in dims:
        x = torch.any(x, dim, keepdim=True)
    return x


def _var(x: Tensor, dims: tuple[int, ...], correction: float) -> Tensor:
    mean = torch.mean(x, dims, keepdim=True) if dims else x
    count = math.prod(x.shape[dim] for dim in dims)
    total = torch.sum((x - mean) ** 2, dims, keepdim=True) if dims else torch.zeros_like(x)
    return total / max(count - correction, 0.0)


def reduce(op: str, x: Tensor, dims: tuple[int, ...], attrs: dict[str, Any]) -> Tensor:
    """Reduces `dims` of `x`, which stay as size 1."""
    if op in ("argmax", "argmin"):
        return _flat_arg(getattr(torch, op), x, dims) if dims else torch.zeros_like(x, dtype=torch.int64)
    if op == "var":
        return _var(x, dims, attrs["correction"])
    if not dims:
        return x.to(torch.bool) if op in ("any", "all") else x
    if op in ("sum", "mean"):
        return torch.sum(x, dims, keepdim=True) if op == "sum" else torch.mean(x, dims, keepdim=True)
    if op in ("max", "min"):
        return torch.amax(x, dims, keepdim=True) if op == "max" else torch.amin(x, dims, keepdim=True)
    return {"prod": _prod, "any": _any, "all": _all}[op](x, dims)

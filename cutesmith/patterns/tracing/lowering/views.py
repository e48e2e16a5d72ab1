"""Lowerings of views and of tensors that are made from nothing (full, arange, zeros_like, tril masks)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cutesmith.patterns.graph.attributes import View
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.takes import take
from cutesmith.patterns.graph.views import push_permute, push_slice
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, Rule, lowers


@lowers("view", "_unsafe_view", "unsqueeze", "squeeze", "_reshape_alias", "prims.squeeze")
def _reshape(low: Lowering, x: Node, *_: Any, **__: Any) -> Node:
    return low.build.reshape(x, tuple(low.shapes[0]))


@lowers("view.dtype")
def _reinterpret(low: Lowering, x: Node, dtype: Any) -> Node:
    build, types = low.build, (x.dtype, low.dtype)
    if types[0] == types[1]:
        return x
    if types == ("float32", "int32"):
        return build("to_bits", x)
    if types == ("int32", "float32"):
        return build("from_bits", x)
    if types == ("bfloat16", "int16"):  # the upper half of a float32
        return build.cast(build("shift_right", build("to_bits", x), 16), "int16")
    if types == ("int16", "bfloat16"):
        return build.retype(build("from_bits", build("shift_left", build.cast(x, "int32"), 16)), "bfloat16")
    if set(types) == {"int8", "uint8"}:
        return build.cast(x, low.dtype)
    raise build.unmatched(f"reinterprets the bits of {x.dtype} as {low.dtype}")


@lowers("expand", "prims.broadcast_in_dim")
def _expand(low: Lowering, x: Node, *_: Any, **__: Any) -> Node:
    return low.build.expand(x, tuple(low.shapes[0]))


@lowers("permute")
def _permute(low: Lowering, x: Node, dims: Sequence[int]) -> Node:
    return push_permute(low.build, x, [dim % len(x.shape) for dim in dims])


@lowers("transpose")
def _transpose(low: Lowering, x: Node, first: int, second: int) -> Node:
    order = list(range(len(x.shape)))
    if order:
        order[first], order[second] = order[second], order[first]
    return push_permute(low.build, x, order)


@lowers("t")
def _t(low: Lowering, x: Node) -> Node:
    return push_permute(low.build, x, list(range(len(x.shape)))[::-1])


@lowers("slice")
def _slice(
    low: Lowering, x: Node, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Node:
    dim = dim % len(x.shape)
    first, _, _ = slice(start, end, step).indices(x.shape[dim])
    sliced = push_slice(low.build, x, dim, first, low.shapes[0][dim], step)
    return low.build.slice_of(sliced, x, dim, first) if step == 1 else sliced


@lowers("select")
def _select(low: Lowering, x: Node, dim: int, index: int) -> Node:
    dim = dim % len(x.shape)
    return _selected(low, x, dim, index % x.shape[dim])


def _selected(low: Lowering, x: Node, dim: int, index: int) -> Node:
    sliced = low.build.slice_of(push_slice(low.build, x, dim, index, 1), x, dim, index)
    return low.build.drop_dims(sliced, [dim])


@lowers("unbind")
def _unbind(low: Lowering, x: Node, dim: int = 0) -> tuple[Node, ...]:
    return tuple(_selected(low, x, dim % len(x.shape), index) for index in range(len(low.shapes)))


@lowers("split", "split_with_sizes")
def _split(low: Lowering, x: Node, sizes: Any, dim: int = 0) -> tuple[Node, ...]:
    dim = dim % len(x.shape)
    lengths = [shape[dim] for shape in low.shapes]
    starts = itertools.accumulate(lengths, initial=0)
    pieces = [(push_slice(low.build, x, dim, start, length), start) for start, length in zip(starts, lengths)]
    return tuple(low.build.slice_of(piece, x, dim, start) for piece, start in pieces)


def _of_memory(low: Lowering, x: Node, code: str, view: Callable[[torch.Tensor], torch.Tensor]) -> Node:
    viewed = low.build.view_in_memory(low.build.stored(x), View(code), view)
    assert viewed is not None
    return viewed


@lowers("diagonal")
def _diagonal(low: Lowering, x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    return _of_memory(
        low, x, f"{{0}}.diagonal({offset}, {dim1}, {dim2})", lambda base: base.diagonal(offset, dim1, dim2)
    )


@lowers("unfold")
def _unfold(low: Lowering, x: Node, dimension: int, size: int, step: int) -> Node:
    return _of_memory(
        low, x, f"{{0}}.unfold({dimension}, {size}, {step})", lambda base: base.unfold(dimension, size, step)
    )


# Tensors made from nothing


def _filled(low: Lowering, value: Operand) -> Node:
    return low.build.expand(low.operand(value), tuple(low.shapes[0]))


@lowers("full", "scalar_tensor", "full_like", "new_full", "fill")
def _full(low: Lowering, *args: Any, fill_value: Operand | None = None, **_: Any) -> Node:
    return _filled(low, args[-1] if fill_value is None else fill_value)


for _value, _names in enumerate(
    (
        "zeros zeros_like new_zeros zero empty empty_like new_empty empty_strided _efficientzerotensor",
        "ones ones_like new_ones",
    )
):
    lowers(*_names.split())(lambda low, *_, value=_value, **__: _filled(low, value))


@lowers("arange.default", "arange.start", "arange.start_step")
def _arange(low: Lowering, *args: Operand, **_: Any) -> Node:
    """start + i·step; floats in the result's class."""
    build, shape = low.build, tuple(low.shapes[0])
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    if shape == (1,):
        return build.expand(low.operand(start), shape)
    coordinate = build.operand(build.iota(shape, 0), low.kind)
    return build("add", build("mul", coordinate, low.operand(step)), low.operand(start), dtype=low.dtype)


def _triangle(comparison: str) -> Rule:
    """Keeps x where column - row compares with `diagonal`."""

    def triangle(low: Lowering, x: Node, diagonal: int = 0) -> Node:
        row, column = (low.build.iota(x.shape[-2:], dim) for dim in (0, 1))
        inside = low.build(comparison, low.build("sub", column, row), diagonal)
        return low.build("where", inside, low.operand(x), low.build.constant(0, low.kind), dtype=low.dtype)

    return triangle


lowers("tril")(_triangle("le"))
lowers("triu")(_triangle("ge"))


@lowers("gather")
def _gather(low: Lowering, x: Node, dim: int, index: Node, **_: Any) -> Node:
    if math.prod(x.shape) == math.prod(index.shape) == 1:
        return x  # the index can be 0 alone
    dim = dim % len(x.shape)
    expected = tuple(1 if at == dim else size for at, size in enumerate(x.shape))
    index = low.build.operand(index, "int64")
    if index.shape == expected:
        return low.build.gather(x, index, dim)
    places = [index if at == dim else low.build.iota(index.shape, at) for at in range(len(index.shape))]
    return take(low.build, x, places, index.shape)


@lowers("eye")
def _eye(low: Lowering, *_: Any, **__: Any) -> Node:
    build, shape = low.build, tuple(low.shapes[0])
    same = build("eq", build.iota(shape, 0), build.iota(shape, 1))
    return build.cast(same, low.dtype)

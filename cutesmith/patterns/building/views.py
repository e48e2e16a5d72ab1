"""Pushes views (reshape, permute, slice) up through a graph to the arguments, where `kernel_fn` makes them for free."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.patterns.building.shapes import Shape, is_squeeze, kept_positions, regrouped_shape
from cutesmith.patterns.tracing.graph import Node, View

if TYPE_CHECKING:
    from cutesmith.patterns.building.builder import GraphBuilder


def view_input(build: GraphBuilder, node: Node, code: str, view: Callable[[torch.Tensor], torch.Tensor]) -> Node | None:
    """`node` (an input) seen through `view`, whose source is `code`; None when that would need a copy."""
    offset, views = node.attrs["offset"], (*node.attrs["views"], View(code))
    with _disable_current_modes():
        base = torch.empty_strided(node.shape, node.attrs["stride"], device="meta")
        try:
            seen = view(base)
        except (RuntimeError, ValueError):
            return None
        shape, stride, offset = tuple(seen.shape), tuple(seen.stride()), offset + seen.storage_offset()
    root = node.attrs["root"]
    if (shape, stride, offset) == (*root, 0):
        views = ()
    attrs = {"index": node.attrs["index"], "views": views, "stride": stride, "offset": offset, "root": root}
    return build.node("input", (), shape, node.dtype, **attrs)


# Reshape


def push_reshape(build: GraphBuilder, node: Node, shape: Shape) -> Node:
    """The elements of `node` in row-major order as `shape`; a `reshape` node stays where no input can take it."""
    if node.shape == shape:
        return node
    if node.op == "reshape":
        return push_reshape(build, node.inputs[0], shape)
    if node.op in ("constant", "scalar"):
        return build.expand(node, shape)
    pushed = _reshaped(build, node, shape)
    return pushed if pushed is not None else build.node("reshape", (build.materialise(node),), shape, node.dtype)


def _reshaped(build: GraphBuilder, node: Node, shape: Shape) -> Node | None:
    if node.op == "input":
        return view_input(build, node, _reshape_code(node.shape, shape), lambda base: base.view(shape))
    if node.op == "iota":
        return _reshape_iota(build, node, shape)
    if node.op == "expand":
        source = reshape_broadcast(build, node.inputs[0], node.shape, shape)
        return None if source is None else build.expand(source, shape)
    if node.is_pointwise:
        inputs = [reshape_broadcast(build, each, node.shape, shape) for each in node.inputs]
        if any(each is None or (each.op == "reshape" and each.shape != each.inputs[0].shape) for each in inputs):
            return _reshape_ones_only(build, node, inputs, shape)
        return build.node(node.op, [each for each in inputs if each is not None], shape, node.dtype, **node.attrs)
    return None


def _reshape_ones_only(build: GraphBuilder, node: Node, inputs: Sequence[Node | None], shape: Shape) -> Node | None:
    """Only un-squeezing goes further than to the arguments; a squeeze is better left to the users of the value."""
    if any(each is None for each in inputs) or not is_squeeze(shape, node.shape):
        return None
    stripped = [each.inputs[0] if each is not None and each.op == "expand" else each for each in inputs]
    return build.node(node.op, [each for each in stripped if each is not None], shape, node.dtype, **node.attrs)


def reshape_broadcast(build: GraphBuilder, node: Node, old: Shape, new: Shape) -> Node | None:
    """`node`, which is broadcast to `old`, so that it broadcasts to `new`; None when a group is half broadcast."""
    if all(size == 1 for size in node.shape):
        return node if not node.shape else push_reshape(build, node, ())
    shape = (1,) * (len(old) - len(node.shape)) + node.shape
    target = regrouped_shape(shape, old, new)
    if target is None:
        return None
    while target and target[0] == 1 and len(node.shape) < len(target):
        target = target[1:]
    return push_reshape(build, node, target)


def _reshape_code(old: Shape, new: Shape) -> str:
    if len(new) == len(old) + 1:
        for dim in range(len(new)):
            if new[:dim] + new[dim + 1 :] == old and new[dim] == 1:
                return f"{{}}.unsqueeze({dim})"
    if len(old) == len(new) + 1:
        for dim in range(len(old)):
            if old[:dim] + old[dim + 1 :] == new and old[dim] == 1:
                return f"{{}}.squeeze({dim})"
    return f"{{}}.view({', '.join(map(str, new))})" if new else "{}.view(())"


def _reshape_iota(build: GraphBuilder, node: Node, shape: Shape) -> Node | None:
    """The coordinate along one long dimension, as a sum over the dimensions it is split into."""
    if math.prod(node.shape) != node.shape[node.attrs["dim"]]:
        return None
    total = build.expand(build.constant(0, "int64"), shape)
    for dim, size in enumerate(shape):
        if size != 1:
            total = build("add", total, build("mul", build.iota(shape, dim), math.prod(shape[dim + 1 :])))
    return total


# Permute


def push_permute(build: GraphBuilder, node: Node, dims: Sequence[int]) -> Node:
    """The transposed value, with the transposition made on the arguments; raises UnmatchedError where it cannot be."""
    shape = tuple(node.shape[dim] for dim in dims)
    long_dims = [dim for dim in dims if node.shape[dim] != 1]
    if long_dims == sorted(long_dims):
        return push_reshape(build, node, shape)
    if node.op == "input":
        code = "{}.t()" if tuple(dims) == (1, 0) else f"{{}}.permute({', '.join(map(str, dims))})"
        viewed = view_input(build, node, code, lambda base: base.permute(*dims))
        assert viewed is not None
        return viewed
    if node.op == "expand":
        return build.expand(_permute_broadcast(build, node.inputs[0], dims), shape)
    return _permute_node(build, node, dims, shape)


def _permute_node(build: GraphBuilder, node: Node, dims: Sequence[int], shape: Shape) -> Node:
    if node.op == "iota":
        return build.iota(shape, list(dims).index(node.attrs["dim"]))
    if node.is_pointwise:
        inputs = [_permute_broadcast(build, each, dims) for each in node.inputs]
        return build.node(node.op, inputs, shape, node.dtype, **node.attrs)
    if node.is_reduction:
        return _permute_reduction(build, node, dims, shape)
    if node.op == "gather":
        inputs = [push_permute(build, each, dims) for each in node.inputs]
        return build.gather(inputs[0], inputs[1], list(dims).index(node.attrs["dim"]))
    if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
        return _permute_squeezed(build, node, dims, shape)
    raise build.unmatched("transposes an intermediate value that was reshaped")


def _permute_squeezed(build: GraphBuilder, node: Node, dims: Sequence[int], shape: Shape) -> Node:
    """Transposes the value before its ones were dropped; they move to the end."""
    source = node.inputs[0]
    kept = kept_positions(source.shape, node.shape)
    dropped = [dim for dim in range(len(source.shape)) if dim not in kept]
    return push_reshape(build, push_permute(build, source, [kept[dim] for dim in dims] + dropped), shape)


def _permute_reduction(build: GraphBuilder, node: Node, dims: Sequence[int], shape: Shape) -> Node:
    reduced = [at for at, dim in enumerate(dims) if dim in node.attrs["dims"]]
    order = [dims[at] for at in reduced]
    if node.op in ("argmax", "argmin") and order != sorted(order):
        raise build.unmatched("transposes the reduced dimensions of an arg-reduction")
    attrs = {**node.attrs, "dims": tuple(reduced)}
    return build.node(node.op, [push_permute(build, node.inputs[0], dims)], shape, node.dtype, **attrs)


def _permute_broadcast(build: GraphBuilder, node: Node, dims: Sequence[int]) -> Node:
    if all(size == 1 for size in node.shape):
        return node if not node.shape else push_reshape(build, node, ())
    padded = push_reshape(build, node, (1,) * (len(dims) - len(node.shape)) + node.shape)
    return push_permute(build, padded, dims)


# Slice


def push_slice(build: GraphBuilder, node: Node, dim: int, start: int, length: int, step: int = 1) -> Node:
    """Elements start, start+step, … (`length` of them) along `dim`; UnmatchedError where it cannot be pushed up."""
    if length == node.shape[dim] and start == 0 and (step == 1 or length == 1):
        return node
    shape = (*node.shape[:dim], length, *node.shape[dim + 1 :])
    if node.op == "input":
        return _slice_input(build, node, dim, start, length, step)
    if node.op == "expand":
        return build.expand(_slice_broadcast(build, node.inputs[0], node.shape, dim, (start, length, step)), shape)
    if node.op == "iota":
        coordinate = build.iota(shape, node.attrs["dim"])
        return coordinate if dim != node.attrs["dim"] else build("add", build("mul", coordinate, step), start)
    if node.is_pointwise:
        inputs = [_slice_broadcast(build, each, node.shape, dim, (start, length, step)) for each in node.inputs]
        return build.node(node.op, inputs, shape, node.dtype, **node.attrs)
    return _slice_node(build, node, dim, (start, length, step), shape)


def _slice_input(build: GraphBuilder, node: Node, dim: int, start: int, length: int, step: int) -> Node:
    index = (slice(None),) * dim + (slice(start, start + length * step, step),)
    viewed = view_input(build, node, _slice_code(node.shape[dim], dim, start, length, step), lambda base: base[index])
    assert viewed is not None
    return viewed


def _slice_code(size: int, dim: int, start: int, length: int, step: int) -> str:
    """Equal parts are said as a fraction of the size, so that halves of x stay halves for another size of x."""
    if step != 1:
        return f"{{}}[{':, ' * dim}{start}:{start + length * step}:{step}]"
    parts = size // length if length else 0
    if parts > MOST_PARTS or parts < 2 or size != parts * length or start % length:
        return f"{{}}.narrow({dim}, {start}, {length})"
    part, place = f"{{0}}.shape[{dim}] // {parts}", start // length
    first = "0" if place == 0 else part if place == 1 else f"{part} * {place}"
    return f"{{0}}.narrow({dim}, {first}, {part})"


MOST_PARTS = 4
"""Slices that are up to a fourth of a dimension are taken for fractions of it, smaller ones for literal sizes."""


def _slice_broadcast(build: GraphBuilder, node: Node, shape: Shape, dim: int, span: tuple[int, int, int]) -> Node:
    own = dim - (len(shape) - len(node.shape))
    if own < 0 or (node.shape[own] == 1 and shape[dim] != 1):
        return node
    return push_slice(build, node, own, *span)


def _slice_node(build: GraphBuilder, node: Node, dim: int, span: tuple[int, int, int], shape: Shape) -> Node:
    if node.is_reduction and dim not in node.attrs["dims"]:
        return build.node(node.op, [push_slice(build, node.inputs[0], dim, *span)], shape, node.dtype, **node.attrs)
    if node.op == "gather" and dim != node.attrs["dim"]:
        inputs = [push_slice(build, each, dim, *span) for each in node.inputs]
        return build.gather(inputs[0], inputs[1], node.attrs["dim"])
    if node.op == "reshape" and is_squeeze(node.inputs[0].shape, node.shape):
        at = kept_positions(node.inputs[0].shape, node.shape)[dim]
        return push_reshape(build, push_slice(build, node.inputs[0], at, *span), shape)
    raise build.unmatched("slices an intermediate value that was reshaped or reduced")

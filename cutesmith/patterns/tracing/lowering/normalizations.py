"""Lowerings of softmax and the normalisations: the forms that the row pattern recognises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers


def _shifted(low: Lowering, x: Node, dim: int) -> tuple[Node, Node, Node]:
    """x - max, its exponential, and the sum of that."""
    build, dims, x = low.build, (dim % max(1, len(x.shape)),), low.operand(x)
    shifted = build("sub", x, build.reduce("max", x, dims, low.kind), dtype=low.kind)
    powers = build("exp", shifted)
    return shifted, powers, build.reduce("sum", powers, dims, low.kind)


@lowers("_softmax")
def _softmax(low: Lowering, x: Node, dim: int, half_to_float: bool) -> Node:
    _, powers, total = _shifted(low, x, dim)
    return low.build("div", powers, total)


def safe_softmax(build: GraphBuilder, x: Node, kind: str) -> Node:
    """The softmax over the last dimension in the type `kind`; a row of -inf alone becomes zeros."""
    dims = (len(x.shape) - 1,)
    powers = build("exp", build("sub", x, build.reduce("max", x, dims, kind), dtype=kind))
    hidden = build.reduce("all", build("eq", x, float("-inf")), dims, "bool")
    return build("where", hidden, 0.0, build("div", powers, build.reduce("sum", powers, dims, kind)), dtype=kind)


@lowers("_safe_softmax")
def _safe_softmax(low: Lowering, x: Node, dim: int, dtype: Any = None) -> Node:
    if dim % len(x.shape) != len(x.shape) - 1:
        raise low.build.unmatched("is taken over a dimension that is not the last")
    return safe_softmax(low.build, low.operand(x), low.kind)


@lowers("_log_softmax")
def _log_softmax(low: Lowering, x: Node, dim: int, half_to_float: bool) -> Node:
    shifted, _, total = _shifted(low, x, dim)
    return low.build("sub", shifted, low.build("log", total))


def _normalised(low: Lowering, x: Node, dims: Sequence[int], eps: float) -> tuple[Node, Node, Node]:
    """(x - mean)·rstd with mean and rstd = 1/sqrt(var + eps) over `dims`."""
    build = low.build
    mean = build.reduce("mean", x, dims, low.kind)
    variance = build.reduce("var", x, dims, low.kind, correction=0.0)
    rstd = build("rsqrt", build("add", variance, low.operand(eps)))
    return build("mul", build("sub", x, mean), rstd), mean, rstd


def _affine(low: Lowering, value: Node, weight: Node | None, bias: Node | None) -> Node:
    value = value if weight is None else low.build("mul", value, low.operand(weight))
    value = value if bias is None else low.build("add", value, low.operand(bias))
    return low.build.retype(value, low.dtype)


@lowers("native_layer_norm")
def _layer_norm(
    low: Lowering, x: Node, shape: Sequence[int], weight: Node | None, bias: Node | None, eps: float
) -> tuple[Node, Node, Node]:
    value, mean, rstd = _normalised(low, low.operand(x), range(len(x.shape) - len(shape), len(x.shape)), eps)
    return _affine(low, value, weight, bias), mean, rstd


@lowers("native_group_norm")
def _group_norm(
    low: Lowering,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    batch: int,
    channels: int,
    spatial: int,
    groups: int,
    eps: float,
) -> tuple[Node, Node, Node]:
    """Each group of channels is one row: (batch, groups, channels a group, spatial), reduced over the last two.

    A single group needs no reshape: it is all of a sample.
    """
    build, single = low.build, groups == 1
    shape = tuple(x.shape) if single else (batch, groups, channels // groups, spatial)
    grouped = build.reshape(low.operand(x), shape)
    value, mean, rstd = _normalised(low, grouped, range(1 if single else 2, len(shape)), eps)
    outer = (channels, *(1 for _ in shape[2:])) if single else (groups, channels // groups, 1)
    sides = [None if side is None else build.reshape(side, outer) for side in (weight, bias)]
    result = build.reshape(_affine(low, value, *sides), x.shape)
    return result, build.reshape(mean, (batch, groups)), build.reshape(rstd, (batch, groups))


@lowers("native_batch_norm", "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional")
def _batch_norm(
    low: Lowering, x: Node, weight: Node | None, bias: Node | None, *others: Any
) -> tuple[Node | None, ...]:
    """Per channel: in training the statistics of the batch, which the functional form also adds to the running ones."""
    *running, training, momentum, eps = others
    mean, variance = running or (None, None)
    channel = (x.shape[1],) + (1,) * (len(x.shape) - 2)
    if training or mean is None or variance is None:
        value, *statistics = _normalised(low, low.operand(x), _all_but_channels(x), eps)
        vectors = [low.build.reshape(each, (x.shape[1],)) for each in statistics]
        moved = _moved(low, x, running, momentum) if len(low.shapes) > len(STATISTICS) else ()
        return _affine_of_channels(low, value, weight, bias, channel), *vectors, *moved
    mean, variance = (low.operand(low.build.reshape(each, channel)) for each in (mean, variance))
    rstd = low.build("rsqrt", low.build("add", variance, low.operand(eps)))
    value = low.build("mul", low.build("sub", low.operand(x), mean), rstd)
    return _affine_of_channels(low, value, weight, bias, channel), None, None


STATISTICS = ("normalised", "mean", "rstd")
"""What a batch norm returns; its functional form also the running mean and variance."""


def _all_but_channels(x: Node) -> list[int]:
    return [dim for dim in range(len(x.shape)) if dim != 1]


def _affine_of_channels(
    low: Lowering, value: Node, weight: Node | None, bias: Node | None, channel: tuple[int, ...]
) -> Node:
    return _affine(low, value, *(None if side is None else low.build.reshape(side, channel) for side in (weight, bias)))


def _moved(low: Lowering, x: Node, running: Sequence[Node], momentum: float) -> tuple[Node, Node]:
    """The running statistics, moved towards the batch's mean and its variance over one element less."""
    build, share = low.build, low.operand(momentum)
    dims, operand = _all_but_channels(x), low.operand(x)
    batch = (
        build.reduce("mean", operand, dims, low.kind),
        build.reduce("var", operand, dims, low.kind, correction=1.0),
    )
    vectors = [build.reshape(value, (x.shape[1],)) for value in batch]
    sides = zip(running, vectors, strict=True)
    first, second = (
        build("add", build("mul", low.operand(old), build("sub", 1.0, share)), build("mul", new, share))
        for old, new in sides
    )
    return first, second

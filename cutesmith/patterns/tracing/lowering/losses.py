"""Lowerings of losses: per element, and their mean or sum over all elements."""

from __future__ import annotations

from cutesmith.patterns.graph.attributes import View
from cutesmith.patterns.graph.node_table import IN_MEMORY
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.lowering.activations import softplus
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers

NONE, MEAN, SUM = 0, 1, 2  # at::Reduction


def _reduce(low: Lowering, value: Node, reduction: int) -> Node:
    if reduction == NONE:
        return low.build.retype(value, low.dtype)
    op = "mean" if reduction == MEAN else "sum"
    total = low.build.reduce(op, value, range(len(value.shape)), low.dtype)
    return low.build.reshape(total, ())


@lowers("mse_loss")
def _mse(low: Lowering, x: Node, target: Node, reduction: int = MEAN) -> Node:
    difference = low.build("sub", *low.operands(x, target))
    return _reduce(low, low.build("mul", difference, difference), reduction)


def _distance(low: Lowering, x: Node, target: Node) -> Node:
    return low.build("abs", low.build("sub", *low.operands(x, target)))


@lowers("smooth_l1_loss")
def _smooth_l1(low: Lowering, x: Node, target: Node, reduction: int = MEAN, beta: float = 1.0) -> Node:
    build, distance, bound = low.build, _distance(low, x, target), low.operand(beta)
    near = build("div", build("mul", build("mul", distance, distance), 0.5), bound)
    far = build("sub", distance, build("mul", bound, 0.5))
    return _reduce(low, build("where", build("lt", distance, bound), near, far), reduction)


@lowers("huber_loss")
def _huber(low: Lowering, x: Node, target: Node, reduction: int = MEAN, delta: float = 1.0) -> Node:
    build, distance, bound = low.build, _distance(low, x, target), low.operand(delta)
    near = build("mul", build("mul", distance, distance), 0.5)
    far = build("mul", bound, build("sub", distance, build("mul", bound, 0.5)))
    return _reduce(low, build("where", build("le", distance, bound), near, far), reduction)


@lowers("soft_margin_loss")
def _soft_margin(low: Lowering, x: Node, target: Node, reduction: int = MEAN) -> Node:
    """PyTorch does not guard its exponential, whose infinity is one of the loss."""
    build = low.build
    product = build("mul", *low.operands(x, target))
    return _reduce(low, build("log1p", build("exp", build("neg", product))), reduction)


@lowers("binary_cross_entropy")
def _bce(low: Lowering, x: Node, target: Node, weight: Node | None = None, reduction: int = MEAN) -> Node:
    """PyTorch clamps both logarithms at -100."""
    build = low.build
    x, target = low.operands(x, target)
    log_x = build("maximum", build("log", x), -100.0)
    log_rest = build("maximum", build("log1p", build("neg", x)), -100.0)
    loss = build("sub", build("mul", build("sub", target, 1.0), log_rest), build("mul", target, log_x))
    return _reduce(low, loss if weight is None else build("mul", loss, low.operand(weight)), reduction)


@lowers("binary_cross_entropy_with_logits")
def _bce_with_logits(
    low: Lowering,
    x: Node,
    target: Node,
    weight: Node | None = None,
    pos_weight: Node | None = None,
    reduction: int = MEAN,
) -> Node:
    """(1 - t)·x + (1 + (p - 1)·t)·softplus(-x), as PyTorch writes it."""
    build = low.build
    x, target = low.operands(x, target)
    tail = softplus(low, build("neg", x))
    if pos_weight is not None:
        factor = build("add", build("mul", build("sub", low.operand(pos_weight), 1.0), target), 1.0)
        tail = build("mul", tail, factor)
    loss = build("add", build("mul", build("sub", 1.0, target), x), tail)
    return _reduce(low, loss if weight is None else build("mul", loss, low.operand(weight)), reduction)


@lowers("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    low: Lowering, x: Node, target: Node, weight: Node | None, reduction: int, ignore_index: int
) -> tuple[Node, Node | None]:
    """-weight[t]·x[t] for each row, 0 where t is `ignore_index`; the mean is over the weights of the rows counted."""
    build, dim = low.build, 1 if len(x.shape) > 1 else 0
    if x.shape[2:3] == (1,):  # PyTorch makes images of the lines of a loss over (samples, classes, tokens)
        x, target = build.drop_dims(x, [2]), build.drop_dims(target, [1])
    index = build.operand(build.reshape(target, (*x.shape[:dim], 1, *x.shape[dim + 1 :])), "int64")
    ignored = build("eq", index, ignore_index)
    picked = build.gather(x, build("where", ignored, build.constant(0, "int64"), index), dim)
    weights = _row_weights(low, x, weight, index, ignored, dim)
    loss = build("neg", picked) if weight is None else build("mul", build("neg", picked), weights)
    loss = build("where", ignored, build.constant(0, low.kind), loss)
    if reduction == NONE:
        return build.reshape(build.retype(loss, low.dtype), tuple(low.shapes[0])), None
    return _nll_total(low, loss, weights, reduction)


def _row_weights(low: Lowering, x: Node, weight: Node | None, index: Node, ignored: Node, dim: int) -> Node:
    build, zero = low.build, low.build.constant(0, low.kind)
    if weight is None:
        return build("where", ignored, zero, build.constant(1, low.kind))
    if len(x.shape) < 2:
        raise build.unmatched("weights the classes of the loss of one sample")
    held = weight if weight.op in IN_MEMORY else build.stored(weight)
    sizes = ", ".join(f"{{{at + 1}}}" for at in range(len(x.shape)))
    code = View(f"{{0}}[:{', None' * (len(x.shape) - 2)}].expand({sizes})", x.shape)
    stretched = build.view_in_memory(held, code, lambda w: w.view(-1, *[1] * (len(x.shape) - 2)).expand(x.shape))
    assert stretched is not None, "one dimension can always be stretched"
    picked = build.gather(stretched, build("where", ignored, build.constant(0, "int64"), index), dim)
    return build("where", ignored, zero, picked)


def _nll_total(low: Lowering, loss: Node, weights: Node, reduction: int) -> tuple[Node, Node | None]:
    build, dims = low.build, range(len(loss.shape))
    total, count = (build.reduce("sum", value, dims, low.kind) for value in (loss, weights))
    value = build("div", total, count) if reduction == MEAN else total
    return build.reshape(build.retype(value, low.dtype), ()), build.reshape(count, ())

"""Lowerings of activation functions, with PyTorch's behaviour for NaN and at the ends of each piece."""

from __future__ import annotations

import math
from typing import Any

from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.views import push_slice
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, Rule, lowers


def softplus(low: Lowering, x: Node) -> Node:
    """log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|))."""
    build = low.build
    tail = build("log1p", build("exp", build("neg", build("abs", x))))
    return build("add", build("maximum", x, 0.0), tail)


def tanh_softplus(low: Lowering, x: Node) -> Node:
    """tanh(log(1 + e^x)) as a quotient of sums of positive terms in t = e^-|x|: one exponential, and nothing cancels.

    With y = 1 + e^x it is (y² - 1) / (y² + 1).
    """
    build = low.build
    t = build("exp", build("neg", build("abs", x)))
    is_positive = build("ge", x, 0.0)
    above = build("where", is_positive, build("add", build("mul", t, 2.0), 1.0), build("mul", t, build("add", t, 2.0)))
    more = build("where", is_positive, build("mul", build("mul", t, t), 2.0), 2.0)
    return build("div", above, build("add", above, more))


@lowers("softplus")
def _softplus(low: Lowering, x: Node, beta: Operand = 1, threshold: Operand = 20) -> Node:
    build = low.build
    scale, limit = low.operands(beta, threshold)
    scaled = build("mul", x, scale)
    soft = build("div", softplus(low, scaled), scale)
    return build("where", build("gt", scaled, limit), x, soft)


@lowers("log_sigmoid_forward")
def _log_sigmoid(low: Lowering, x: Node) -> tuple[Node | None, ...]:
    tail = low.build("log1p", low.build("exp", low.build("neg", low.build("abs", x))))
    return low.build("sub", low.build("minimum", x, 0.0), tail), None


@lowers("elu")
def _elu(low: Lowering, x: Node, alpha: Operand = 1, scale: Operand = 1, input_scale: Operand = 1) -> Node:
    """scale·x where x > 0, else scale·alpha·(exp(input_scale·x) - 1)."""
    build = low.build
    factor, outer, inner = low.operands(alpha, scale, input_scale)
    negative = build("mul", build("expm1", build("mul", x, inner)), build("mul", factor, outer))
    return build("where", build("gt", x, 0), build("mul", x, outer), negative)


@lowers("celu")
def _celu(low: Lowering, x: Node, alpha: Operand = 1.0) -> Node:
    build = low.build
    factor = low.operand(alpha)
    negative = build("mul", build("expm1", build("div", x, factor)), factor)
    return build("where", build("gt", x, 0), x, negative)


@lowers("hardshrink")
def _hardshrink(low: Lowering, x: Node, lambd: Operand = 0.5) -> Node:
    """0 within [-λ, λ]; NaN is kept."""
    build, bound = low.build, low.rounded(lambd, x.dtype)
    inside = build("logical_and", build("ge", x, build("neg", bound)), build("le", x, bound))
    return build("where", inside, build.constant(0, low.kind), x)


@lowers("softshrink")
def _softshrink(low: Lowering, x: Node, lambd: Operand = 0.5) -> Node:
    """x ∓ λ outside [-λ, λ], and 0·x inside, which carries NaN."""
    build, bound = low.build, low.rounded(lambd, x.dtype)
    below = build("where", build("lt", x, build("neg", bound)), build("add", x, bound), build("mul", x, 0.0))
    return build("where", build("gt", x, bound), build("sub", x, bound), below)


@lowers("threshold")
def _threshold(low: Lowering, x: Node, threshold: Operand, value: Operand) -> Node:
    build = low.build
    inside = build("le", x, low.rounded(threshold, x.dtype))
    return build("where", inside, low.operand(value), x)


@lowers("glu")
def _glu(low: Lowering, x: Node, dim: int = -1) -> Node:
    build, dim = low.build, dim % len(x.shape)
    half = x.shape[dim] // 2
    value, gate = (push_slice(build, x, dim, start, half) for start in (0, half))
    return build("mul", value, build("sigmoid", gate))


@lowers("gelu")
def _gelu(low: Lowering, x: Node, *, approximate: str = "none") -> Node:
    build = low.build
    (x,) = low.operands(x)
    if approximate == "none":
        return build("mul", x, build("normcdf", x))
    cube = build("mul", build("mul", x, x), x)
    inner = build("add", x, build("mul", cube, 0.044715))
    twice = build("mul", inner, 2.0 * math.sqrt(2.0 / math.pi))
    return build("mul", x, build("sigmoid", twice))


@lowers("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def _dropout(low: Lowering, x: Node, p: float, train: bool) -> Node:
    """The input itself, unless elements are dropped at random."""
    if train and p:
        raise low.build.unmatched("draws random numbers")
    return x


def _hard_gate(low: Lowering, x: Node) -> Node:
    """relu6(x + 3) / 6."""
    shifted = low.build("maximum", low.build("add", x, 3.0), 0.0)
    return low.build("div", low.build("minimum", shifted, 6.0), 6.0)


def _leaky(low: Lowering, x: Node, slope: Operand = 0.01) -> Node:
    return low.build("where", low.build("gt", x, 0), x, low.build("mul", x, low.operand(slope)))


@lowers("rrelu")
def _rrelu(low: Lowering, x: Node, least: float = 1 / 8, most: float = 1 / 3, train: bool = False, *_: Any) -> Node:
    """Slopes are drawn in training; else each is the middle of the two ends."""
    if train:
        raise low.build.unmatched("draws random numbers")
    return _leaky(low, x, (least + most) / 2)


_EXPRESSIONS: dict[str, Rule] = {
    "relu": lambda low, x: low.build("maximum", x, 0),
    "hardtanh": lambda low, x, min_val=-1, max_val=1: low.clamped(x, min_val, max_val),
    "hardsigmoid": _hard_gate,
    "hardswish": lambda low, x: low.build("mul", x, _hard_gate(low, x)),
    "silu": lambda low, x: low.build("mul", x, low.build("sigmoid", x)),
    "mish": lambda low, x: low.build("mul", x, tanh_softplus(low, x)),
    "leaky_relu": _leaky,
    "_prelu_kernel": _leaky,
}
for _name, _rule in _EXPRESSIONS.items():
    lowers(_name)(_rule)

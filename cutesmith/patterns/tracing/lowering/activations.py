"""Lowerings of activation functions, with PyTorch's behaviour for NaN and at the ends of each piece."""

from __future__ import annotations

import math

from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.views import push_slice
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, lowers


@lowers("relu")
def _relu(low: Lowering, x: Node) -> Node:
    return low.build("maximum", x, 0, dtype=low.dtype)


@lowers("relu6")
def _relu6(low: Lowering, x: Node) -> Node:
    return low.build("minimum", low.build("maximum", x, 0), 6, dtype=low.dtype)


@lowers("hardtanh")
def _hardtanh(low: Lowering, x: Node, min_val: Operand = -1, max_val: Operand = 1) -> Node:
    above = low.build("maximum", x, low.operand(min_val))
    return low.build("minimum", above, low.operand(max_val), dtype=low.dtype)


def _hard_gate(low: Lowering, x: Node) -> Node:
    build = low.build
    shifted = build("minimum", build("maximum", build("add", x, 3.0), 0.0), 6.0)
    return build("div", shifted, 6.0)


@lowers("hardsigmoid")
def _hardsigmoid(low: Lowering, x: Node) -> Node:
    return _hard_gate(low, x)


@lowers("hardswish")
def _hardswish(low: Lowering, x: Node) -> Node:
    return low.build("mul", x, _hard_gate(low, x), dtype=low.dtype)


@lowers("silu")
def _silu(low: Lowering, x: Node) -> Node:
    return low.build("mul", x, low.build("sigmoid", x), dtype=low.dtype)


def softplus(low: Lowering, x: Node) -> Node:
    """log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|))."""
    build = low.build
    tail = build("log1p", build("exp", build("neg", build("abs", x))))
    return build("add", build("maximum", x, 0.0), tail)


@lowers("softplus")
def _softplus(low: Lowering, x: Node, beta: Operand = 1, threshold: Operand = 20) -> Node:
    build = low.build
    scale, limit = low.operands(beta, threshold)
    scaled = build("mul", x, scale)
    soft = build("div", softplus(low, scaled), scale)
    return build("where", build("gt", scaled, limit), x, soft, dtype=low.dtype)


@lowers("mish")
def _mish(low: Lowering, x: Node) -> Node:
    return low.build("mul", x, low.build("tanh", softplus(low, x)), dtype=low.dtype)


@lowers("log_sigmoid_forward", "log_sigmoid")
def _log_sigmoid(low: Lowering, x: Node) -> tuple[Node | None, ...] | Node:
    build = low.build
    tail = build("log1p", build("exp", build("neg", build("abs", x))))
    value = build("sub", build("minimum", x, 0.0), tail, dtype=low.dtype)
    return value if len(low.shapes) == 1 else (value, None)


def elu(low: Lowering, x: Node, alpha: Operand = 1, scale: Operand = 1, input_scale: Operand = 1) -> Node:
    """scale·x where x > 0, else scale·alpha·(exp(input_scale·x) - 1)."""
    build = low.build
    factor, outer, inner = low.operands(alpha, scale, input_scale)
    negative = build("mul", build("expm1", build("mul", x, inner)), build("mul", factor, outer))
    return build("where", build("gt", x, 0), build("mul", x, outer), negative, dtype=low.dtype)


lowers("elu")(elu)


@lowers("selu")
def _selu(low: Lowering, x: Node) -> Node:
    return elu(low, x, 1.6732632423543772, 1.0507009873554805)


@lowers("celu")
def _celu(low: Lowering, x: Node, alpha: Operand = 1.0) -> Node:
    build = low.build
    factor = low.operand(alpha)
    negative = build("mul", build("expm1", build("div", x, factor)), factor)
    return build("where", build("gt", x, 0), x, negative, dtype=low.dtype)


@lowers("leaky_relu")
def _leaky_relu(low: Lowering, x: Node, negative_slope: Operand = 0.01) -> Node:
    build = low.build
    return build("where", build("gt", x, 0), x, build("mul", x, low.operand(negative_slope)), dtype=low.dtype)


@lowers("_prelu_kernel")
def _prelu(low: Lowering, x: Node, weight: Node) -> Node:
    build = low.build
    return build("where", build("gt", x, 0), x, build("mul", x, low.operand(weight)), dtype=low.dtype)


@lowers("hardshrink")
def _hardshrink(low: Lowering, x: Node, lambd: Operand = 0.5) -> Node:
    """0 within [-λ, λ]; NaN is kept."""
    build, bound = low.build, low.rounded(lambd, x.dtype)
    inside = build("logical_and", build("ge", x, build("neg", bound)), build("le", x, bound))
    return build("where", inside, build.constant(0, low.kind), x, dtype=low.dtype)


@lowers("softshrink")
def _softshrink(low: Lowering, x: Node, lambd: Operand = 0.5) -> Node:
    """x ∓ λ outside [-λ, λ], and 0·x inside, which carries NaN."""
    build, bound = low.build, low.rounded(lambd, x.dtype)
    below = build("where", build("lt", x, build("neg", bound)), build("add", x, bound), build("mul", x, 0.0))
    return build("where", build("gt", x, bound), build("sub", x, bound), below, dtype=low.dtype)


@lowers("threshold")
def _threshold(low: Lowering, x: Node, threshold: Operand, value: Operand) -> Node:
    build = low.build
    inside = build("le", x, low.rounded(threshold, x.dtype))
    return build("where", inside, low.operand(value), x, dtype=low.dtype)


@lowers("glu")
def _glu(low: Lowering, x: Node, dim: int = -1) -> Node:
    build, dim = low.build, dim % len(x.shape)
    half = x.shape[dim] // 2
    value, gate = (push_slice(build, x, dim, start, half) for start in (0, half))
    return build("mul", value, build("sigmoid", gate), dtype=low.dtype)


@lowers("gelu")
def _gelu(low: Lowering, x: Node, *, approximate: str = "none") -> Node:
    build = low.build
    (x,) = low.operands(x)
    if approximate == "none":
        return build("mul", x, build("normcdf", x), dtype=low.dtype)
    cube = build("mul", build("mul", x, x), x)
    inner = build("add", x, build("mul", cube, 0.044715))
    twice = build("mul", inner, 2.0 * math.sqrt(2.0 / math.pi))
    return build("mul", x, build("sigmoid", twice), dtype=low.dtype)

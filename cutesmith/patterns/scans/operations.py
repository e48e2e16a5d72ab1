"""The device function that joins what two neighbouring parts of a line give, for each operation of a scan."""

from __future__ import annotations

import torch

from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.scans.analysis import ScanProblem
from cutesmith.patterns.writing.expressions import literal

NEUTRAL = {"linear": 0, "sum": 0, "prod": 1, "max": float("-inf"), "min": float("inf"), "logsumexp": float("-inf")}
LOG_SUM_EXP = """\
    top = {maximum}
    step = {minimum} - top
    both = top + cute.math.log1p(cute.math.exp(step))
    return top if (a == b) & ((a == {T}(math.inf)) | (a == {T}(-math.inf))) else both"""
"""Equal infinities are their own result: inf - inf would be NaN."""


def neutral(operation: str, dtype: str) -> str:
    """The number of a dtype that changes nothing, as a literal of the DSL type that computes with it."""
    value, state = NEUTRAL[operation], COMPUTE_TYPE[dtype]
    if operation in ("max", "min") and state.startswith("Int"):
        limits = torch.iinfo(getattr(torch, dtype))
        value = limits.min if operation == "max" else limits.max
    return literal(value, state)


def combine_source(problem: ScanProblem) -> str:
    """`combined(a, b)`, or with places or factors `combined(a, a_at, b, b_at)`; `a` comes before `b`."""
    kind, operation = problem.state, problem.operation
    if problem.is_placed:
        later = f"(b {'>=' if operation == 'max' else '<='} a)"
        if kind.startswith("Float"):
            later = f"({later} & (a == a)) | (b != b)"
        signature = f"a: {kind}, a_at: Int32, b: {kind}, b_at: Int32"
        body = f"    later = {later}\n    return b if later else a, b_at if later else a_at"
    elif problem.is_linear:
        signature = f"a: {kind}, a_at: {kind}, b: {kind}, b_at: {kind}"
        body = f"    entering = b_at * a if a != {literal(0, kind)} else a\n    return entering + b, a_at * b_at"
    else:
        signature, body = f"a: {kind}, b: {kind}", _joined(operation, kind)
    said = '    """What two neighbouring parts of a line give together; a comes before b."""'
    return f"@cute.jit\ndef combined({signature}):\n{said}\n{body}"


def _joined(operation: str, kind: str) -> str:
    if operation == "logsumexp":
        extremes = {name: _expression(name, kind) for name in ("maximum", "minimum")}
        return LOG_SUM_EXP.format(T=kind, **extremes)
    return f"    return {combined(operation, kind)}"


def combined(operation: str, kind: str) -> str:
    """The expression of a sum, product or extreme of `a` and `b`, of a DSL type."""
    return _expression({"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[operation], kind)


def _expression(name: str, kind: str) -> str:
    return POINTWISE[name].expression(kind, fast=False).format("a", "b", T=kind)

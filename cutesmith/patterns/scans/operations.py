"""The device function that joins what two neighbouring parts of a line give, for each operation of a scan."""

from __future__ import annotations

import math

import torch

from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.scans.analysis import ScanProblem
from cutesmith.patterns.writing.expressions import literal

NEUTRAL = {"linear": 0, "sum": 0, "prod": 1, "max": float("-inf"), "min": float("inf")}
EXPONENTIALS = """\
@cute.jit
def parted(x: {T}):
    \"\"\"exp(x) as exp(top) * sum: top is finite, so that no difference is NaN; sum is 1, or what x is beyond.\"\"\"
    top = {smaller}({larger}(x, -MOST), MOST)  # -MOST for NaN
    return top, {T}(1.0) if x == top else {T}(0.0) if x < 0 else x


@cute.jit
def power(gap: {T}):
    \"\"\"exp(gap), where gap is not positive.\"\"\"
    return {power}


@cute.jit
def combined(a: {T}, a_at: {T}, b: {T}, b_at: {T}):
    \"\"\"What two neighbouring parts of a line give together: the larger top, and the sum beside it by one power.\"\"\"
    gap = a - b
    is_first = gap >= 0
    shrunk = power(-cute.math.absf(gap))
    return {larger}(a, b), a_at + b_at * shrunk if is_first else a_at * shrunk + b_at


@cute.jit
def finished(top: {T}, sum: {T}):
    \"\"\"The logarithm of exp(top) * sum.\"\"\"
    return top + {logarithm}"""
"""A logarithm for each result instead of one for each step."""
MOST = {"Float32": torch.finfo(torch.float32).max, "Float64": torch.finfo(torch.float64).max}
POWER = {
    "Float32": f"cute.math.exp2(gap * {math.log2(math.e)!r}, fastmath=True)",
    "Float64": "cute.math.exp(gap)",
}
LARGER = {"Float32": "cute.arch.fmax", "Float64": "cute.math.max"}  # of two that are not NaN, or the second
LOGARITHM = {
    "Float32": f"cute.math.log2(sum, fastmath=True) * {math.log(2)!r}",  # off by 2e-7: a sum is 1 at least
    "Float64": "cute.math.log(sum)",
}


def neutral(operation: str, dtype: str) -> str:
    """The number of a dtype that changes nothing, as a literal of the DSL type that computes with it."""
    state = COMPUTE_TYPE[dtype]
    value = -MOST[state] if operation == "logsumexp" else NEUTRAL[operation]
    if operation in ("max", "min") and state.startswith("Int"):
        limits = torch.iinfo(getattr(torch, dtype))
        value = limits.min if operation == "max" else limits.max
    return literal(value, state)


def combine_source(problem: ScanProblem) -> str:
    """`combined(a, b)`, or with places or factors `combined(a, a_at, b, b_at)`; `a` comes before `b`."""
    kind, operation = problem.state, problem.operation
    if problem.is_exponential:
        larger, smaller = LARGER[kind], LARGER[kind].replace("max", "min")
        written = EXPONENTIALS.format(
            T=kind, power=POWER[kind], logarithm=LOGARITHM[kind], larger=larger, smaller=smaller
        )
        return f"MOST = {kind}({MOST[kind]!r})\n\n\n{written}"
    if problem.is_placed:
        later = f"(b {'>=' if operation == 'max' else '<='} a)"
        if kind.startswith("Float"):
            later = f"{later} | (b != b)"  # a comparison with NaN is false
        signature = f"a: {kind}, a_at: Int32, b: {kind}, b_at: Int32"
        body = f"    later = {later}\n    return b if later else a, b_at if later else a_at"
    elif problem.is_linear:
        signature = f"a: {kind}, a_at: {kind}, b: {kind}, b_at: {kind}"
        body = f"    entering = b_at * a if a != {literal(0, kind)} else a\n    return entering + b, a_at * b_at"
    else:
        signature, body = f"a: {kind}, b: {kind}", f"    return {combined(operation, kind)}"
    said = '    """What two neighbouring parts of a line give together; a comes before b."""'
    return f"@cute.jit\ndef combined({signature}):\n{said}\n{body}"


def combined(operation: str, kind: str) -> str:
    """The expression of a sum, product or extreme of `a` and `b`, of a DSL type."""
    name = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[operation]
    return POINTWISE[name].expression(kind, fast=False).format("a", "b", T=kind)

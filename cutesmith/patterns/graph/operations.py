"""The pointwise operations of the graph: one row each, with all that is known of it.

A new operation is a new row here, and a device function in `writing/special_functions.py` where the DSL has no
expression for it. Tracing takes the ATen names from the row, building its dtype and neutral element, evaluation its
torch function, and writing its CuTe DSL expression. Functions that several operations make up, such as `lerp`, are
lowerings (`tracing/lowering/`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import torch

from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, INDEX


class Kind(Enum):
    """What an operation takes and gives: this decides its dtype and how operands are converted, traced and written."""

    ARITHMETIC = auto()  # operands of the result's arithmetic class
    ROUNDING = auto()  # as arithmetic; integers stay as they are
    COMPARISON = auto()  # operands of one class, bool
    CLASSIFICATION = auto()  # of a float, bool; False for every integer
    EXPONENT = auto()  # of a float, int32
    BITS = auto()  # of an int32, float32
    LOGIC = auto()  # of truth values, bool
    SELECTION = auto()  # a condition, then two operands of the result's class
    CONVERSION = auto()  # to the node's dtype


@dataclass(frozen=True)
class Pointwise:
    """One operation on elements.

    `torch` computes it on tensors of the arithmetic class; `aten` are the ATen names (of all overloads) whose operands
    are its own. The other texts are CuTe DSL expressions of the operands `{0}`, `{1}`, `{2}` in the DSL type `{T}`: for
    all numbers, for floats, for Float32, for Float32 where approximate instructions are good enough (`fast`), for
    integers, for Boolean. A function without a prefix, as in `sigmoid({0})`, is a device function of ours. `wraps`: the
    result may not fit a narrow integer. `neutral` is the second operand that changes nothing; the first one too, if the
    operation `commutes`.
    """

    name: str
    torch: Callable[..., torch.Tensor]
    kind: Kind = Kind.ARITHMETIC
    aten: tuple[str, ...] = ()
    numbers: str = ""
    floats: str = ""
    float32: str = ""
    fast: str = ""
    integers: str = ""
    booleans: str = ""
    wraps: bool = False
    neutral: int | None = None
    neutral_for_floats: bool = True  # False: -0.0 + 0.0 is 0.0
    commutes: bool = False
    idempotent: bool = False  # of two equal operands it is either
    self_inverse: bool = False

    @property
    def own_dtype(self) -> str:
        """The dtype of the result where it is one whatever the operands are, else ""."""
        if self.kind in (Kind.COMPARISON, Kind.CLASSIFICATION, Kind.LOGIC):
            return "bool"
        return {Kind.EXPONENT: "int32", Kind.BITS: "float32"}.get(self.kind, "")

    def expression(self, kind: str, *, fast: bool) -> str:
        """The DSL expression for operands of the DSL type `kind`; "" where there is none."""
        if kind == "Boolean":
            return self.booleans
        if kind.startswith("Int") or kind == COMPUTE_TYPE[INDEX]:
            return self.integers or self.numbers
        exact = kind == "Float32" and ((fast and self.fast) or self.float32)
        return exact or self.floats or self.numbers


def _math(name: str, *, approximate: bool = False) -> Pointwise:
    """A function that torch, ATen and the DSL's `cute.math` have under one name."""
    fast = f"cute.math.{name}({{0}}, fastmath=True)" if approximate else ""
    return Pointwise(name, getattr(torch, name), aten=(name,), floats=f"cute.math.{name}({{0}})", fast=fast)


def _rounding(name: str, code: str, aten: tuple[str, ...] = ()) -> Pointwise:
    return Pointwise(name, getattr(torch, name), Kind.ROUNDING, aten, floats=code, integers="{0}")


def _comparison(name: str, operator: str) -> Pointwise:
    code = f"{{0}} {operator} {{1}}"
    return Pointwise(name, getattr(torch, name), Kind.COMPARISON, (name,), numbers=code, booleans=code)


def _logic(name: str, code: str, *, self_inverse: bool = False) -> Pointwise:
    return Pointwise(name, getattr(torch, name), Kind.LOGIC, (name,), booleans=code, self_inverse=self_inverse)


def _classification(name: str, code: str) -> Pointwise:
    never = "Boolean(False)"
    aten = (name,)
    return Pointwise(name, getattr(torch, name), Kind.CLASSIFICATION, aten, floats=code, integers=never, booleans=never)


def _normcdf(x: torch.Tensor) -> torch.Tensor:
    return torch.erfc(-x * math.sqrt(0.5)) / 2


def _exponent(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isfinite(x), torch.frexp(x).exponent, 0)


def _trunc_div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


_ROWS = (
    # Functions of one operand
    *map(_math, "expm1 log1p rsqrt tan asin acos atan sinh cosh asinh acosh atanh erf erfc".split()),
    Pointwise("tanh", torch.tanh, aten=("tanh",), floats="cute.math.tanh({0})", fast="tanh_fast({0})"),
    *(_math(name, approximate=True) for name in "exp2 log log2 log10 sqrt sin cos".split()),
    Pointwise(
        "exp",
        torch.exp,
        aten=("exp",),
        floats="cute.math.exp({0})",
        fast=f"cute.math.exp2({{0}} * {math.log2(math.e)!r}, fastmath=True)",  # one ex2.approx: 2 ulp
    ),
    Pointwise(
        "sigmoid",
        torch.sigmoid,
        aten=("sigmoid",),
        floats="sigmoid({0})",
        float32="sigmoid_float32({0})",
        fast="sigmoid_fast({0})",
    ),
    Pointwise(
        "normcdf",  # Φ(x) = erfc(-x/√2)/2
        _normcdf,
        aten=("special_ndtr",),
        floats="normcdf({0})",
        float32="normcdf_float32({0})",
        fast="normcdf_fast({0})",
    ),
    Pointwise("lgamma", torch.lgamma, aten=("lgamma",), floats="lgamma({0})"),
    Pointwise("digamma", torch.digamma, aten=("digamma",), floats="digamma({0})"),
    Pointwise("erfinv", torch.erfinv, aten=("erfinv",), floats="erfinv({0})"),
    Pointwise(
        "reciprocal",
        torch.reciprocal,
        aten=("reciprocal",),
        floats="{T}(1.0) / {0}",
        fast="cute.math.div({T}(1.0), {0}, full=True)",
    ),
    Pointwise("neg", torch.neg, aten=("neg",), numbers="-{0}", wraps=True, self_inverse=True),
    Pointwise("abs", torch.abs, aten=("abs",), floats="cute.math.absf({0})", integers="-{0} if {0} < {T}(0) else {0}"),
    Pointwise(
        "sign",
        torch.sign,
        floats="sign_float({0})",
        integers="({T}(1) if {0} > {T}(0) else (-{T}(1) if {0} < {T}(0) else {T}(0)))",
    ),
    Pointwise("exponent", _exponent, Kind.EXPONENT, floats="exponent({0})"),  # e of m 2^e with 0.5 <= |m| < 1
    Pointwise("mantissa", lambda x: torch.frexp(x).mantissa, floats="mantissa({0})"),
    Pointwise(
        "to_bits", lambda x: x.float().view(torch.int32), Kind.EXPONENT, floats="{0}.bitcast(Int32)"
    ),  # of a float32
    Pointwise("from_bits", lambda x: x.int().view(torch.float32), Kind.BITS, integers="{0}.bitcast(Float32)"),
    _rounding("floor", "cute.math.floor({0})", ("floor",)),
    _rounding("ceil", "cute.math.ceil({0})", ("ceil",)),
    _rounding("trunc", "cute.math.trunc({0})", ("trunc",)),
    _rounding("round", "cute.math.roundeven({0})"),  # half to even; ATen's has decimals
    # Arithmetic of two operands
    Pointwise(
        "add",
        torch.add,
        numbers="{0} + {1}",
        booleans="{0} | {1}",
        wraps=True,
        neutral=0,
        neutral_for_floats=False,
        commutes=True,
    ),
    Pointwise("sub", torch.sub, numbers="{0} - {1}", wraps=True, neutral=0),
    Pointwise("mul", torch.mul, numbers="{0} * {1}", booleans="{0} & {1}", wraps=True, neutral=1, commutes=True),
    Pointwise(  # a product that ptxas fuses with no sum: both read one rounded value
        "rounded_mul", torch.mul, floats="cute.math.fma({0}, {1}, {T}(0.0))"
    ),
    Pointwise(
        "div",  # true division, of floats
        torch.true_divide,
        floats="{0} / {1}",
        fast="cute.math.div({0}, {1}, full=True)",
        neutral=1,
    ),
    Pointwise(
        "floor_div",
        torch.floor_divide,
        aten=("floor_divide",),
        floats="floor_div_float({0}, {1})",
        integers="floor_div_int({0}, {1})",
    ),
    Pointwise("trunc_div", _trunc_div, floats="cute.math.trunc({0} / {1})", integers="trunc_div_int({0}, {1})"),
    Pointwise("fmod", torch.fmod, aten=("fmod",), floats="cute.math.rem({0}, {1})", integers="fmod_int({0}, {1})"),
    Pointwise(
        "remainder",
        torch.remainder,
        aten=("remainder",),
        floats="remainder_float({0}, {1})",
        integers="remainder_int({0}, {1})",
    ),
    Pointwise("pow", torch.pow, floats="cute.math.pow({0}, {1})", integers="pow_int({0}, {1})"),
    Pointwise("atan2", torch.atan2, aten=("atan2",), floats="atan2({0}, {1})"),
    Pointwise(
        "minimum",  # carries NaN, as `maximum` does
        torch.minimum,
        aten=("minimum",),
        floats="cute.math.min({0}, {1}, propagate_nan=True)",
        float32="cute.arch.fmin({0}, {1}, nan=True)",
        integers="{0} if {0} < {1} else {1}",
        booleans="{0} & {1}",
        idempotent=True,
    ),
    Pointwise(
        "maximum",
        torch.maximum,
        aten=("maximum",),
        floats="cute.math.max({0}, {1}, propagate_nan=True)",
        float32="cute.arch.fmax({0}, {1}, nan=True)",
        integers="{0} if {0} > {1} else {1}",
        booleans="{0} | {1}",
        idempotent=True,
    ),
    Pointwise("gcd", torch.gcd, aten=("gcd",), integers="gcd_int({0}, {1})"),
    # Bits
    Pointwise("bitwise_and", torch.bitwise_and, aten=("bitwise_and",), integers="{0} & {1}", booleans="{0} & {1}"),
    Pointwise("bitwise_or", torch.bitwise_or, aten=("bitwise_or",), integers="{0} | {1}", booleans="{0} | {1}"),
    Pointwise("bitwise_xor", torch.bitwise_xor, aten=("bitwise_xor",), integers="{0} ^ {1}", booleans="{0} ^ {1}"),
    Pointwise(
        "bitwise_not",
        torch.bitwise_not,
        integers="{0} ^ {T}(-1)",
        booleans="{0} ^ Boolean(True)",
        wraps=True,
        self_inverse=True,
    ),
    Pointwise(
        "shift_left",
        torch.bitwise_left_shift,
        aten=("bitwise_left_shift", "__lshift__"),
        integers="{0} << {1}",
        wraps=True,
    ),
    Pointwise(
        "shift_right", torch.bitwise_right_shift, aten=("bitwise_right_shift", "__rshift__"), integers="{0} >> {1}"
    ),
    # Truth values
    *map(_comparison, "eq ne lt le gt ge".split(), "== != < <= > >=".split()),
    _logic("logical_and", "{0} & {1}"),
    _logic("logical_or", "{0} | {1}"),
    _logic("logical_xor", "{0} ^ {1}"),
    _logic("logical_not", "{0} ^ Boolean(True)", self_inverse=True),
    _classification("isnan", "{0} != {0}"),
    _classification("isinf", "({0} == {T}(math.inf)) | ({0} == {T}(-math.inf))"),
    # Selection and conversion
    Pointwise(
        "where",
        torch.where,
        Kind.SELECTION,
        numbers="{1} if {0} else {2}",
        booleans="{1} if {0} else {2}",
    ),
    Pointwise("cast", lambda x: x, Kind.CONVERSION),
)

POINTWISE = {row.name: row for row in _ROWS}
"""Operation name → row."""

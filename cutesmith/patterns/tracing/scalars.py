"""Python numbers among the inputs: followed through Python arithmetic, so that they stay run-time arguments.

A number argument is replaced by a `TracedFloat` or `TracedInt` of an unusual value. Arithmetic on it gives another
traced number whose value stands for the expression; where PyTorch then receives a plain number of that value, the
expression is put into the graph. A test of its value (`if alpha > 0`) or its use as a size cannot be followed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Number, Scalar
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Node

FLOAT_SENTINEL = 1.000000123457
"""Factor that makes a float argument unusual, yet keeps it valid where a range is checked."""

INT_SENTINEL = 1009
"""Added to an integer argument: unusual, but a loop over it still ends soon."""

Expression = Callable[[GraphBuilder, str], Node]


class Scalars:
    """The traced numbers of one trace: value → expression over the scalar arguments.

    With `follow=False` numbers are left as they are: the plain trace that a traced one must agree with.
    """

    def __init__(self, *, follow: bool) -> None:
        self.follow = follow
        self._expressions: dict[tuple[type, Number], Expression] = {}

    def argument(self, index: int, name: str, value: Number) -> Number:
        """What the function is called with in place of the number `value` of argument `index`."""
        if not self.follow:
            return value
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._traced(value + INT_SENTINEL + 101 * index, _argument(index, "int64"), name)
        if not math.isfinite(value) or value == 0.0:
            value = 1e-3 * (index + 1)
        return self._traced(value * FLOAT_SENTINEL ** (index + 1), _argument(index, "float32"), name)

    def node(self, build: GraphBuilder, value: Number, kind: str) -> Node:
        """The node of a number in arithmetic of class `kind`: a run-time scalar (expression) or a constant."""
        plain = type(value) if isinstance(value, bool) else float if isinstance(value, float) else int
        expression = self._expressions.get((plain, plain(value)))
        if expression is None:
            as_float = self._expressions.get((int, int(value))) if isinstance(value, float) and value % 1 == 0 else None
            expression = as_float
        return build.constant(value, kind) if expression is None else expression(build, kind)

    def _traced(self, value: Number, expression: Expression, name: str) -> Number:
        traced: Any = (TracedFloat if isinstance(value, float) else TracedInt)(value)
        traced.scalars, traced.expression, traced.name = self, expression, name
        self._expressions[(float if isinstance(value, float) else int, value)] = expression
        return traced  # type: ignore[no-any-return]

    def combine(self, op: str, left: Any, right: Any, name: str) -> Any:
        """The traced number `left op right`; NotImplemented for what Python arithmetic gives us no number for."""
        if not all(isinstance(side, (int, float)) for side in (left, right)):
            return NotImplemented
        value = _PYTHON[op](_plain(left), _plain(right))
        if isinstance(value, complex):
            raise _untraceable(name, "in complex arithmetic")
        return self._traced(value, _binary(op, left, right), name)


def _argument(index: int, natural: str) -> Expression:
    def expression(build: GraphBuilder, kind: str) -> Node:
        own = natural if natural == "int64" else "float64" if kind == "float64" else "float32"
        return build.operand(build.node("scalar", (), (), own, Scalar(index)), kind)

    return expression


def _binary(op: str, left: Number, right: Number) -> Expression:
    def expression(build: GraphBuilder, kind: str) -> Node:
        exact = all(isinstance(side, int) for side in (left, right)) and op != "div"
        inner = "int64" if exact else kind if is_float(kind) else "float32"
        sides = [side.expression(build, inner) if isinstance(side, _Traced) else side for side in (left, right)]
        operands = [side if isinstance(side, Node) else build.constant(side, inner) for side in sides]
        return build.operand(build(op, *operands), kind)

    return expression


def _plain(value: Any) -> Number:
    return float(value) if isinstance(value, float) else int(value)


_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}


def _untraceable(name: str, how: str) -> UnmatchedError:
    return UnmatchedError(
        f"scalar argument {name} is used {how}: the kernel would be right for one value of it only",
        operation=f"scalar argument {name}",
        hint="A kernel may hold it, but the function cannot be traced with its value either: a model is needed.",
    )


class _Traced:
    """Arithmetic that keeps the expression; tests of the value raise."""

    scalars: Scalars
    expression: Expression
    name: str

    def __bool__(self) -> bool:
        raise _untraceable(self.name, "as a condition")

    def __hash__(self) -> int:
        return hash(_plain(self))

    def __neg__(self) -> Any:
        return self.scalars.combine("mul", self, -1, self.name)

    def __pos__(self) -> Any:
        return self


def _forward(op: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.scalars.combine(op, self, other, self.name)


def _reflected(op: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.scalars.combine(op, other, self, self.name)


def _refused(how: str) -> Callable[..., Any]:
    def refuse(self: Any, *_: Any) -> Any:
        raise _untraceable(self.name, how)

    return refuse


for _op, _method in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "truediv"), ("pow", "pow")):
    setattr(_Traced, f"__{_method}__", _forward(_op))
    setattr(_Traced, f"__r{_method}__", _reflected(_op))
for _method in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_Traced, f"__{_method}__", _refused("in a comparison"))
for _method in ("floordiv", "rfloordiv", "mod", "rmod", "abs", "divmod", "rdivmod", "round", "trunc", "floor", "ceil"):
    setattr(_Traced, f"__{_method}__", _refused("in Python arithmetic that cannot be followed"))


class TracedFloat(_Traced, float):
    """A float argument."""

    __hash__ = _Traced.__hash__


class TracedInt(_Traced, int):
    """An integer argument."""

    __hash__ = _Traced.__hash__


class CountedInt(int):
    """An integer argument that PyTorch takes as a size: sums and products of it are followed, tests of it raise.

    Its value is that of the trace, which is repeated with other values as with other sizes.
    """

    name: str
    __hash__ = int.__hash__

    @classmethod
    def of(cls, value: int, name: str) -> CountedInt:
        """The number of the argument of this name."""
        counted = cls(value)
        counted.name = name
        return counted


def _counted(op: str) -> Callable[[Any, Any], Any]:
    def combine(self: CountedInt, other: Any) -> Any:
        plain = getattr(int, f"__{op}__")(int(self), other)
        return plain if plain is NotImplemented else CountedInt.of(plain, self.name)

    return combine


for _method in ("add", "radd", "sub", "rsub", "mul", "rmul"):
    setattr(CountedInt, f"__{_method}__", _counted(_method))
for _method in ("bool", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(CountedInt, f"__{_method}__", _refused("in a comparison"))
for _method in ("float", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "round", "abs"):
    setattr(CountedInt, f"__{_method}__", _refused("in Python arithmetic that cannot be followed"))


def untraceable(name: str) -> UnmatchedError:
    """The error for a number that changes the trace itself: a size, a loop count, `math.sqrt(alpha)`."""
    return _untraceable(name, "in Python code that decides what is computed")

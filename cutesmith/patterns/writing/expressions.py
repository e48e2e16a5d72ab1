"""Graph nodes as CuTe DSL statements over scalars: what both kernel templates put inside their loops.

One element is one scalar: bf16/fp16/fp32 compute in `Float32`, fp64 in `Float64`, narrow integers in `Int32`, bool in
`Boolean`. Loads and stores stay vectorised in the templates; the compiler keeps unrolled scalars in registers.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Constant
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE, COMPUTE_TYPES, HALVES, INDEX, STORAGE_TYPE, is_float, widens
from cutesmith.patterns.graph.nodes import Graph, Node
from cutesmith.patterns.graph.operations import POINTWISE, Kind, Pointwise
from cutesmith.patterns.writing.special_functions import SPECIAL_FUNCTIONS

STEPS = frozenset("floor ceil round trunc floor_div trunc_div remainder fmod eq ne to_bits".split())
"""Operations that turn a float's last digit into a step: x / x must be 1 before it is rounded down."""


def is_fast(graph: Graph) -> bool:
    """Whether approximate instructions are good enough: every output is a 16-bit float, and no float is stepped."""
    if any(map(_is_step, graph.nodes())):
        return False
    return all(node.dtype in HALVES for node in graph.outputs)


def _is_step(node: Node) -> bool:
    of_float = any(is_float(value.dtype) for value in node.inputs)
    return of_float and (node.op in STEPS or (node.op == "cast" and not is_float(node.dtype)))


def literal(value: float | int | bool, kind: str) -> str:
    """A Python constant as a typed DSL scalar, e.g. `Float32(0.5)`, `Int32(3)`, `Boolean(True)`."""
    if kind == "Boolean":
        return f"Boolean({bool(value)})"
    if kind.startswith("Int") or kind == COMPUTE_TYPE[INDEX]:
        return f"{kind}({int(value)})"
    number = float(value)
    if math.isnan(number):
        return f"{kind}(math.nan)"
    if math.isinf(number):
        return f"{kind}({'' if number > 0 else '-'}math.inf)"
    return f"{kind}({number!r})"


def convert(code: str, source: str, target: str) -> str:
    """The scalar `code` of DSL type `source` as DSL type `target`."""
    if source == target:
        return code
    if target == "Boolean":
        return f"({code} != {literal(0, source)})"
    if source == "Boolean":
        return f"({literal(1, target)} if {code} else {literal(0, target)})"
    if source == "Uint8":  # of a tensor that `make_tensor` gave another layout it is an Int8
        return f"Uint8({code}).to({target})"
    return f"{code}.to({target})"


def _inverse(value: float, kind: str) -> float | None:
    """1 / value as PyTorch on CUDA divides by a number (`a * (1.0f / b)`), or None where that is not a normal number.

    A rounding that depends on it, as a quantiser's, is then PyTorch's to the bit.
    """
    rounded, smallest = (float, 2.0**-1022) if kind == "Float64" else (_float32, 2.0**-126)
    divisor = rounded(value)
    if divisor == 0 or not math.isfinite(divisor):
        return None
    inverse = rounded(1.0 / divisor)
    return inverse if smallest <= abs(inverse) < math.inf else None


def _float32(value: float) -> float:
    return ctypes.c_float(value).value


class Emitter:
    """Prints nodes as statements in one scope, each node once; `leaf` names what the template loaded for a leaf.

    `lines` collects the statements, `helpers` the names of device helper functions (special_functions) used.
    `hoist(node, suffix, code)` may define a value outside the loop: for a node that is constant in it, the template
    computes `code` (with `{}` for the node's value) once and gives its name; None means "not constant here".
    """

    def __init__(
        self,
        leaf: Callable[[Node], str | None],
        *,
        fast: bool,
        names: dict[int, str] | None = None,
        helpers: set[str] | None = None,
        prefix: str = "",
        hoist: Callable[[Node, str, str], str | None] | None = None,
    ) -> None:
        self.leaf = leaf
        self.fast = fast
        self.lines: list[str] = []
        self.helpers: set[str] = helpers if helpers is not None else set()
        self._names: dict[int, str] = names if names is not None else {}
        self._prefix = prefix
        self._hoist = hoist if hoist is not None else lambda node, name, code: None

    def value(self, node: Node) -> str:
        """The name or literal that holds the node's element, after emitting what it needs."""
        if id(node) in self._names:
            return self._names[id(node)]
        given = self.leaf(node)
        if given is not None:
            return self._bind(node, given)
        if node.op == "constant":
            return literal(Constant.of(node).value, COMPUTE_TYPE[node.dtype])
        if not node.is_pointwise:
            raise UnmatchedError(f"{node.where} cannot stand inside an element", operation=node.op)
        return self._define(node, self._expression(node))

    def _bind(self, node: Node, code: str) -> str:
        """A leaf's code under a name: indexing a fragment inside a conditional expression does not compile (4.8.1)."""
        if code.isidentifier() or "(" in code and code.endswith(")") and node.op in ("constant", "scalar", "sized"):
            self._names[id(node)] = code
            return code
        if code.endswith("[v]") and code[:-3].isidentifier():
            self._names[id(node)] = f"{code[:-3]}_v"
            self.lines.append(f"{code[:-3]}_v = {code}")
            return self._names[id(node)]
        return self._define(node, code)

    def fresh(self, stem: str) -> str:
        """A name for the statement that comes next; emitters of one scope differ in their prefix."""
        return f"{self._prefix}{stem}_{len(self.lines)}"

    def as_type(self, node: Node, kind: str) -> str:
        """`value(node)` converted to the DSL type `kind`."""
        if node.op == "constant":
            return literal(Constant.of(node).value, kind)
        return convert(self.value(node), COMPUTE_TYPE[node.dtype], kind)

    def _define(self, node: Node, code: str) -> str:
        name = f"{self._prefix}{node.op}_{len(self._names)}"
        self._names[id(node)] = name
        self.lines.append(f"{name} = {code}")
        return name

    def _expression(self, node: Node) -> str:
        row, kind = POINTWISE[node.op], COMPUTE_TYPE[node.dtype]
        if row.kind is Kind.CONVERSION:
            return self._cast(node, kind)
        args, kind = self._operands(node, row, kind)
        code = self._product(node, args[0], kind) if node.op == "div" else ""
        code = code or self._filled(node, row, args, kind)
        if row.wraps and node.dtype in ("int8", "int16", "uint8"):
            code = f"({code}).to({STORAGE_TYPE[node.dtype]}).to(Int32)"
        return code

    def _operands(self, node: Node, row: Pointwise, kind: str) -> tuple[list[str], str]:
        """The operands' codes and the DSL type that the operation computes in."""
        if row.kind in (Kind.COMPARISON, Kind.CLASSIFICATION, Kind.EXPONENT, Kind.BITS):
            kind = max((COMPUTE_TYPE[child.dtype] for child in node.inputs), key=COMPUTE_TYPES.index)
        elif row.kind is Kind.LOGIC:
            kind = "Boolean"
        elif row.kind is Kind.SELECTION:
            condition, *sides = node.inputs
            return [self.as_type(condition, "Boolean"), *(self.as_type(side, kind) for side in sides)], kind
        return [self.as_type(child, kind) for child in node.inputs], kind

    def _filled(self, node: Node, row: Pointwise, args: list[str], kind: str) -> str:
        """The expression of the table; a device function of ours that it calls is remembered."""
        template = row.expression(kind, fast=self.fast)
        if not template:
            raise UnmatchedError(f"{node.where} has no CuTe DSL form for {node.dtype}", operation=node.op)
        called = re.match(r"(\w+)\(", template)
        if called and called[1] in SPECIAL_FUNCTIONS:
            self.helpers.add(called[1])
        return template.format(*args, T=kind)

    def _cast(self, node: Node, kind: str) -> str:
        (source,) = node.inputs
        code = self.as_type(source, kind)
        if node.dtype in ("int8", "int16", "uint8") and source.dtype != node.dtype:
            return f"({code}).to({STORAGE_TYPE[node.dtype]}).to(Int32)"
        if widens(source.dtype, node.dtype):
            return code
        if node.dtype == "float8_e5m2":
            self.helpers.add("to_float8_e5m2")
            return f"to_float8_e5m2({code})"
        if node.dtype in ("float8_e4m3fn", *HALVES):  # beyond 448 e4m3 saturates, as PyTorch 2.13 has it
            return code if source.dtype == "bool" else f"({code}).to({STORAGE_TYPE[node.dtype]}).to(Float32)"
        return code

    def _product(self, node: Node, dividend: str, kind: str) -> str:
        """A division by a number, or by what is constant in the loop, as a multiplication; "" for any other."""
        divisor = node.inputs[1]
        if divisor.op == "constant" and (inverse := _inverse(Constant.of(divisor).value, kind)) is not None:
            return f"{dividend} * {literal(inverse, kind)}"
        hoistable = divisor.op == "sized" or (self.fast and kind == "Float32")
        if hoistable and COMPUTE_TYPE[divisor.dtype] == kind and (name := self._hoist(divisor, "inverse", "1.0 / {}")):
            return f"{dividend} * {name}"
        return self._quotient(divisor, dividend) if kind == COMPUTE_TYPE[divisor.dtype] == "Float32" else ""

    def _quotient(self, divisor: Node, dividend: str) -> str:
        """A division by what is constant in the loop, as exact as any, by its inverse; "" for any other.

        A division is some 15 instructions, this is 6. Blocks of 128 as fp8 had 240 of 440 in divisions, and took as
        long as those take an H200 (29.7 us).
        """
        unit = self._hoist(divisor, "unit", "unit_beside({})")
        if not unit:
            return ""
        self.helpers |= {"unit_beside", "quotient"}
        scaled = self._hoist(divisor, "scaled", f"{{}} * {unit}")
        return f"quotient({dividend}, {unit}, {scaled}, {self._hoist(divisor, 'inverse', f'1.0 / {scaled}')})"

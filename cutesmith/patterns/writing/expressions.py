"""Graph nodes as CuTe DSL statements over scalars: what both kernel templates put inside their loops.

One element is one scalar: bf16/fp16/fp32 compute in `Float32`, fp64 in `Float64`, narrow integers in `Int32`, bool in
`Boolean`. Loads and stores stay vectorised in the templates; the compiler keeps unrolled scalars in registers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.tracing.graph import Graph, Node
from cutesmith.patterns.writing.special_functions import HELPERS

COMPUTE_TYPE = {
    "float16": "Float32",
    "bfloat16": "Float32",
    "float32": "Float32",
    "float64": "Float64",
    "int8": "Int32",
    "int16": "Int32",
    "int32": "Int32",
    "uint8": "Int32",
    "int64": "Int64",
    "bool": "Boolean",
}
"""torch dtype name -> DSL type that arithmetic on it uses."""

STORAGE_TYPE = {
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float32": "Float32",
    "float64": "Float64",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "uint8": "Uint8",
    "int64": "Int64",
    "bool": "Uint8",
}
"""torch dtype name -> DSL type of its memory; bool travels as bytes."""

ITEM_BYTES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
    "int8": 1, "int16": 2, "int32": 4, "uint8": 1, "int64": 8, "bool": 1,
}  # fmt: skip


def moved_bytes(graph: Graph) -> int:
    """Bytes that must cross device memory once: all argument tensors and outputs, in the traced shapes."""
    reads = sum(math.prod(a.shape) * ITEM_BYTES[a.dtype] for a in graph.arguments if a.kind == "tensor")
    return reads + sum(math.prod(node.shape) * ITEM_BYTES[node.dtype] for node in graph.outputs)


_RANK = ["Boolean", "Int32", "Int64", "Float32", "Float64"]
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>"}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_WRAPPING = frozenset({"add", "sub", "mul", "neg", "shift_left", "bitwise_not"})
_CUTE_MATH = frozenset(
    "exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc floor ceil trunc exp".split()
)
_FAST_MATH = frozenset("exp exp2 log log2 log10 sqrt sin cos".split())


def is_fast(graph: Graph) -> bool:
    """Whether approximate instructions are good enough: every output is a 16-bit float."""
    return all(node.dtype in ("float16", "bfloat16") for node in graph.outputs)


def literal(value: float | int | bool, kind: str) -> str:
    """A Python constant as a typed DSL scalar, e.g. `Float32(0.5)`, `Int32(3)`, `Boolean(True)`."""
    if kind == "Boolean":
        return f"Boolean({bool(value)})"
    if kind.startswith("Int"):
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

    `lines` collects the statements, `helpers` the names of device helper functions (special_functions.HELPERS) used.
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
            return literal(node.attrs["value"], COMPUTE_TYPE[node.dtype])
        if not node.is_pointwise:
            raise UnmatchedError(f"{node.origin or node.op} cannot stand inside an element", operation=node.op)
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

    def as_type(self, node: Node, kind: str) -> str:
        """`value(node)` converted to the DSL type `kind`."""
        if node.op == "constant":
            return literal(node.attrs["value"], kind)
        return convert(self.value(node), COMPUTE_TYPE[node.dtype], kind)

    def _define(self, node: Node, code: str) -> str:
        name = f"{self._prefix}{node.op}_{len(self._names)}"
        self._names[id(node)] = name
        self.lines.append(f"{name} = {code}")
        return name

    def _expression(self, node: Node) -> str:
        kind = COMPUTE_TYPE[node.dtype]
        if node.op == "cast":
            return self._cast(node, kind)
        code = self._operation(node, kind)
        if node.op in _WRAPPING and node.dtype in ("int8", "int16", "uint8"):
            code = f"({code}).to({STORAGE_TYPE[node.dtype]}).to(Int32)"
        return code

    def _cast(self, node: Node, kind: str) -> str:
        (source,) = node.inputs
        code = self.as_type(source, kind)
        if node.dtype in ("int8", "int16", "uint8") and source.dtype != node.dtype:
            return f"({code}).to({STORAGE_TYPE[node.dtype]}).to(Int32)"
        if node.dtype in ("float16", "bfloat16") and source.dtype not in ("float16", "bfloat16", node.dtype):
            if not COMPUTE_TYPE[source.dtype].startswith("Float"):
                return code
            return f"({code}).to({STORAGE_TYPE[node.dtype]}).to(Float32)"
        return code

    def _operation(self, node: Node, kind: str) -> str:
        op = node.op
        if op in _COMPARISONS:
            left, right = self._promoted(node.inputs)
            return f"{left} {_COMPARISONS[op]} {right}"
        if op in _LOGICAL:
            left, right = (self.as_type(child, "Boolean") for child in node.inputs)
            return f"{left} {_LOGICAL[op]} {right}"
        if op == "logical_not":
            (source,) = node.inputs
            source_kind = COMPUTE_TYPE[source.dtype]
            if source_kind == "Boolean":
                return f"{self.value(source)} ^ Boolean(True)"
            return f"{self.value(source)} == {literal(0, source_kind)}"
        if op in ("isnan", "isinf"):
            return self._classify(node)
        if op == "where":
            condition = self.as_type(node.inputs[0], "Boolean")
            then, other = (self.as_type(child, kind) for child in node.inputs[1:])
            return f"{then} if {condition} else {other}"
        if kind == "Boolean":
            return self._on_booleans(node)
        return self._arithmetic(node, kind)

    def _classify(self, node: Node) -> str:
        (source,) = node.inputs
        kind = COMPUTE_TYPE[source.dtype]
        code = self.value(source)
        if not kind.startswith("Float"):
            return "Boolean(False)"
        if node.op == "isnan":
            return f"{code} != {code}"
        return f"({code} == {literal(math.inf, kind)}) | ({code} == {literal(-math.inf, kind)})"

    def _on_booleans(self, node: Node) -> str:
        operands = [self.as_type(child, "Boolean") for child in node.inputs]
        if node.op in ("bitwise_and", "mul", "minimum"):
            return " & ".join(operands)
        if node.op in ("bitwise_or", "add", "maximum"):
            return " | ".join(operands)
        if node.op == "bitwise_xor":
            return " ^ ".join(operands)
        if node.op == "bitwise_not":
            return f"{operands[0]} ^ Boolean(True)"
        raise UnmatchedError(f"{node.origin or node.op} on booleans", operation=node.op)

    def _promoted(self, nodes: Iterable[Node]) -> list[str]:
        nodes = list(nodes)
        kinds = [COMPUTE_TYPE[node.dtype] for node in nodes]
        target = max(kinds, key=_RANK.index)
        return [self.as_type(node, target) for node in nodes]

    def _arithmetic(self, node: Node, kind: str) -> str:
        op = node.op
        if op == "exp" and self.fast and kind == "Float32":
            return self._fast_exp(node.inputs[0])
        args = [self.as_type(child, kind) for child in node.inputs]
        if op in _ARITHMETIC:
            return f"{args[0]} {_ARITHMETIC[op]} {args[1]}"
        if op in _BITWISE:
            return f"{args[0]} {_BITWISE[op]} {args[1]}"
        if op in ("minimum", "maximum"):
            return self._extreme("min" if op == "minimum" else "max", args, kind)
        if op == "div":
            return self._division(node, args, kind)
        if op == "neg":
            return f"-{args[0]}"
        if kind.startswith("Int"):
            return self._on_integers(node, args, kind)
        return self._on_floats(node, args, kind)

    def _fast_exp(self, source: Node) -> str:
        """exp as one multiplication and one ex2.approx (2 ulp)."""
        return f"cute.math.exp2({self.as_type(source, 'Float32')} * {math.log2(math.e)!r}, fastmath=True)"

    def _extreme(self, name: str, args: list[str], kind: str) -> str:
        if kind == "Float32":
            return f"cute.arch.f{name}({args[0]}, {args[1]}, nan=True)"
        if kind == "Float64":
            return f"cute.math.{name}({args[0]}, {args[1]}, propagate_nan=True)"
        sign = ">" if name == "max" else "<"
        return f"{args[0]} if {args[0]} {sign} {args[1]} else {args[1]}"

    def _division(self, node: Node, args: list[str], kind: str) -> str:
        divisor = node.inputs[1]
        if divisor.op == "constant" and (inverse := _inverse(divisor.attrs["value"], kind)) is not None:
            return f"{args[0]} * {literal(inverse, kind)}"
        hoistable = divisor.op == "sized" or (self.fast and kind == "Float32")
        if (
            hoistable
            and COMPUTE_TYPE[divisor.dtype] == kind
            and (hoisted := self._hoist(divisor, "inverse", "1.0 / {}"))
        ):
            return f"{args[0]} * {hoisted}"
        if self.fast and kind == "Float32":
            return f"cute.math.div({args[0]}, {args[1]}, full=True)"
        return f"{args[0]} / {args[1]}"

    def _on_integers(self, node: Node, args: list[str], kind: str) -> str:
        op, zero = node.op, literal(0, kind)
        if op == "abs":
            return f"-{args[0]} if {args[0]} < {zero} else {args[0]}"
        if op == "sign":
            one = literal(1, kind)
            return f"({one} if {args[0]} > {zero} else (-{one} if {args[0]} < {zero} else {zero}))"
        if op in ("floor", "ceil", "round", "trunc"):
            return args[0]
        if op == "bitwise_not":
            return f"{args[0]} ^ {literal(-1, kind)}"
        if op == "floor_div":
            return f"{args[0]} // {args[1]}"
        return self._helper(op, "int", args, node)

    def _on_floats(self, node: Node, args: list[str], kind: str) -> str:
        op = node.op
        fast = self.fast and kind == "Float32"
        if op == "abs":
            return f"cute.math.absf({args[0]})"
        if op == "round":
            return f"cute.math.roundeven({args[0]})"
        if op == "reciprocal":
            return (
                f"cute.math.div({literal(1, kind)}, {args[0]}, full=True)"
                if fast
                else f"{literal(1, kind)} / {args[0]}"
            )
        if op == "floor_div":
            return f"cute.math.floor({args[0]} / {args[1]})"
        if op == "trunc_div":
            return f"cute.math.trunc({args[0]} / {args[1]})"
        if op == "fmod":
            return f"cute.math.rem({args[0]}, {args[1]})"
        if op in ("pow", "atan2"):
            return self._helper(op, "float", args, node) if op == "atan2" else f"cute.math.pow({args[0]}, {args[1]})"
        if f"{op}_fast" in HELPERS and fast:
            return self._helper(f"{op}_fast", "float", args, node)
        if f"{op}_{kind.lower()}" in HELPERS:
            return self._helper(f"{op}_{kind.lower()}", "float", args, node)
        if op in _CUTE_MATH:
            return f"cute.math.{op}({args[0]}{', fastmath=True' if fast and op in _FAST_MATH else ''})"
        return self._helper(op, "float", args, node)

    def _helper(self, op: str, family: str, args: list[str], node: Node) -> str:
        for name in (op, f"{op}_{family}"):
            if name in HELPERS:
                self.helpers.add(name)
                return f"{name}({', '.join(args)})"
        raise UnmatchedError(f"{node.origin or op} has no CuTe DSL form for {node.dtype}", operation=op)

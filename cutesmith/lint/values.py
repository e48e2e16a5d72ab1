"""What is evident about the values of a traced function: their dtype, and whether they are known only at run time.

A small forward look, never a guess: an expression whose dtype does not follow from the code at hand has none.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source
from cutesmith.lint.staging import walk_function

FLOATS = frozenset({"Float16", "BFloat16", "Float32", "Float64", "TFloat32"})
INTEGERS = frozenset({"Int8", "Int16", "Int32", "Int64", "Uint8", "Uint16", "Uint32", "Uint64"})
_Fact = TypeVar("_Fact")
_Method = Callable[[Any, ast.expr], _Fact]
RUNTIME_CALLS = frozenset(
    f"cutlass.cute.arch.{name}"
    for name in ("thread_idx", "block_idx", "lane_idx", "warp_idx", "block_idx_in_cluster", "cluster_idx")
)
RUNTIME_ANNOTATIONS = frozenset(f"cutlass.{name}" for name in FLOATS | INTEGERS | {"Boolean"})


def remembered(unknown: _Fact) -> Callable[[_Method[_Fact]], _Method[_Fact]]:
    """Keep a method's answer for each node; a node that is asked about while it is being answered is `unknown`."""

    def decorate(method: _Method[_Fact]) -> _Method[_Fact]:
        @functools.wraps(method)
        def answer(self: Values, node: ast.expr) -> _Fact:
            key = (method.__name__, id(node))
            if key not in self.answers:
                self.answers[key] = unknown
                self.answers[key] = method(self, node)
            found: _Fact = self.answers[key]
            return found

        return answer

    return decorate


class Values:
    """Evident facts about expressions of one function."""

    def __init__(self, source: Source, function: FunctionNode) -> None:
        self.source = source
        self.function = function
        self.answers: dict[tuple[str, int], Any] = {}

    @functools.cached_property
    def assigned(self) -> dict[str, list[ast.expr | None]]:
        """What each name of the function is assigned: expressions, or None where it cannot be followed."""
        found: dict[str, list[ast.expr | None]] = {}
        for node in walk_function(self.function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value, found)
            elif isinstance(node, (ast.AugAssign, ast.For, ast.NamedExpr, ast.AnnAssign)):
                self._assign(node.target, None, found)
        return found

    def _assign(self, target: ast.expr, value: ast.expr | None, found: dict[str, list[ast.expr | None]]) -> None:
        if isinstance(target, ast.Name):
            found.setdefault(target.id, []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._assign(element, value if self._is_runtime_call(value) else None, found)

    @functools.cached_property
    def parameters(self) -> dict[str, str]:
        """Parameters of the function with the dotted name of their annotation (empty when there is none)."""
        arguments = self.function.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        return {a.arg: (self.source.dotted(a.annotation) or "" if a.annotation else "") for a in every}

    def is_tensor(self, node: ast.expr) -> bool:
        """A parameter annotated `cute.Tensor`."""
        return isinstance(node, ast.Name) and self.parameters.get(node.id) == "cutlass.cute.Tensor"

    def is_element(self, node: ast.expr) -> bool:
        """An element (`gX[i]`) of a tensor parameter."""
        return isinstance(node, ast.Subscript) and self.is_tensor(node.value)

    @remembered(False)
    def is_vector(self, node: ast.expr) -> bool:
        """A value made by `.load()`, followed through names that are assigned once, arithmetic and `.to(…)`."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "load" and not node.args and not node.keywords:
                return self.source.dotted(node.func) is None
            return node.func.attr == "to" and self.is_vector(node.func.value)
        if isinstance(node, ast.BinOp):
            return self.is_vector(node.left) or self.is_vector(node.right)
        value = self.single(node)
        return value is not None and self.is_vector(value)

    def single(self, node: ast.expr) -> ast.expr | None:
        """The one expression that a local name stands for."""
        if isinstance(node, ast.Name) and node.id not in self.parameters:
            values = self.assigned.get(node.id, [])
            return values[0] if len(values) == 1 else None
        return None

    @remembered("")
    def dtype(self, node: ast.expr) -> str:
        """The evident dtype of an expression: `Float32`, …; "int" and "float" for Python numbers, else empty."""
        if isinstance(node, ast.Constant):
            return {int: "int", float: "float"}.get(type(node.value), "")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return self.dtype(node.operand)
        if isinstance(node, ast.Call):
            return self._call_dtype(node)
        value = self.single(node)
        return self.dtype(value) if value is not None else ""

    def _call_dtype(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and len(node.args) == 1:
            return self._dtype_name(node.args[0])
        return self._dtype_name(node.func)

    def _dtype_name(self, node: ast.expr) -> str:
        dotted = self.source.dotted(node) or ""
        name = dotted.rpartition(".")[2]
        return name if dotted.startswith("cutlass.") and name in FLOATS | INTEGERS else ""

    def is_number(self, node: ast.expr) -> bool:
        """A literal Python number, negated or not."""
        return self.dtype(node) in ("int", "float") and not isinstance(node, ast.Name)

    @remembered(False)
    def is_runtime(self, node: ast.expr) -> bool:
        """Evidently known only at run time: thread indices, elements, DSL-typed parameters, …."""
        if isinstance(node, ast.Name):
            if self.parameters.get(node.id) in RUNTIME_ANNOTATIONS:
                return True
            values = [] if node.id in self.parameters else self.assigned.get(node.id, [])
            return bool(values) and all(v is not None and self.is_runtime(v) for v in values)
        if isinstance(node, ast.BinOp):
            return self.is_runtime(node.left) or self.is_runtime(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_runtime(node.operand)
        if isinstance(node, ast.Subscript):
            return self.is_element(node) and not isinstance(node.slice, (ast.Slice, ast.Tuple))
        return self._is_runtime_call(node)

    def _is_runtime_call(self, node: ast.AST | None) -> bool:
        return isinstance(node, ast.Call) and self.source.dotted(node.func) in RUNTIME_CALLS

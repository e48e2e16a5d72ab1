"""What the DSL stages: which ifs and loops of a traced function become GPU control flow.

Mirrors the DSL's own preprocessor, which looks at syntax alone: an `if` or `while` is staged unless its test is a call
of `const_expr` or `target_version`, a `for` when it runs over `range(…)` by whatever prefix, but not `range_constexpr`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

CONSTANT_TESTS = frozenset({"const_expr", "target_version"})
STAGED_RANGES = frozenset({"range", "range_dynamic"})
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def callee_name(node: ast.AST) -> str:
    """The last part of a call's function name; empty when there is none."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_staged(node: ast.AST) -> bool:
    """Whether the DSL stages this statement of a traced function."""
    if isinstance(node, (ast.If, ast.While)):
        return callee_name(node.test) not in CONSTANT_TESTS
    return isinstance(node, ast.For) and callee_name(node.iter) in STAGED_RANGES


def walk_function(node: ast.AST) -> Iterator[ast.AST]:
    """Every node beneath, without entering nested functions and classes (they themselves are given)."""
    waiting = [*ast.iter_child_nodes(node)][::-1]
    while waiting:  # in the order of the text, and not recursive: each node would come through all calls above it
        child = waiting.pop()
        yield child
        if not isinstance(child, NESTED):
            waiting += [*ast.iter_child_nodes(child)][::-1]

"""Which host functions run at every call of `kernel_fn`, and which only to fill a cache."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Iterator

from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source
from cutesmith.lint.staging import walk_function


def host_functions(source: Source, *, every_call: bool = False) -> list[FunctionNode]:
    """`kernel_fn` and every untraced module-level function that it calls, directly or through others.

    With `every_call` only those that run each time: not those behind a cache decorator or a look-up that may skip them.
    """
    start = source.top_level("kernel_fn")
    found = [] if start is None or (every_call and is_cached(start)) else [start]
    for function in found:
        for call in own_calls(function):
            called = called_function(source, call)
            if called is None or called in source.traced or called in found:
                continue
            if not every_call or not (is_cached(called) or is_conditional(source, call, function)):
                found.append(called)
    return found


def own_calls(function: FunctionNode) -> Iterator[ast.Call]:
    """Calls in a function's own body, in source order, nested functions left out."""
    return (
        node
        for statement in function.body
        for node in (statement, *walk_function(statement))
        if isinstance(node, ast.Call)
    )


def called_function(source: Source, call: ast.Call) -> FunctionNode | None:
    """The module-level function that a call by plain name reaches; None when the name is something else there."""
    if not isinstance(call.func, ast.Name):
        return None
    home = source.scopes.scope_of(call.func).find(call.func.id)
    return source.top_level(call.func.id) if home is not None and isinstance(home.node, ast.Module) else None


def is_cached(function: FunctionNode) -> bool:
    """Whether a decorator keeps the function's results (`functools.cache`, `lru_cache`, …)."""
    return any("cache" in ast.unparse(decorator).lower() for decorator in function.decorator_list)


def is_conditional(source: Source, node: ast.AST, function: FunctionNode) -> bool:
    """Whether a node may be skipped: below an `if` or `except`, or after an early return of the function."""
    for ancestor in source.ancestors(node):
        if ancestor is function:
            break
        skips = isinstance(ancestor, (ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler, ast.Lambda))
        if skips and not _asks_for_emptiness(ancestor):
            return True
    return _early_return(function) < getattr(node, "lineno", 0)


@functools.lru_cache(maxsize=1)  # asked for one call after the other of a function, whose body may have hundreds
def _early_return(function: FunctionNode) -> float:
    """The line of the first statement of a function that may return early; infinity where there is none."""
    returns = (
        other.lineno
        for other in function.body
        if isinstance(other, (ast.If, ast.Try))
        and not _asks_for_emptiness(other)
        and any(isinstance(n, ast.Return) for n in ast.walk(other))
    )
    return next(returns, math.inf)


def _asks_for_emptiness(node: ast.AST) -> bool:
    """Whether an `if` only tells empty tensors apart: `if x.numel():`, which keeps nothing that was compiled."""
    if not isinstance(node, ast.If):
        return False
    names = [part for part in ast.walk(node.test) if isinstance(part, ast.Name)]
    calls = [part for part in ast.walk(node.test) if isinstance(part, ast.Call)]
    sizes = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "numel"]
    return bool(sizes) and len(sizes) == len(calls) == len(names)

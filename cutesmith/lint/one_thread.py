"""Where a traced function is executed by one thread of a warp alone: within `elect_one`, or below a test for one."""

from __future__ import annotations

import ast
import functools

from cutesmith.lint.call_graph import called_function
from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source
from cutesmith.lint.staging import walk_function

ELECT = "cutlass.cute.arch.elect_one"
THREAD_INDEX, LANE_INDEX = "cutlass.cute.arch.thread_idx", "cutlass.cute.arch.lane_idx"
BLOCK_INDEX, GRID_SIZE = "cutlass.cute.arch.block_idx", "cutlass.cute.arch.grid_dim"
_WARP = 32


def election(source: Source, node: ast.AST) -> ast.With | None:
    """The innermost `with elect_one():` that a node of the same function lies in, its own apart."""
    below = node
    for above in source.ancestors(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(above, ast.With) and below in above.body:
            for item in above.items:
                context = item.context_expr
                if isinstance(context, ast.Call) and source.dotted(context.func) == ELECT:
                    return above
        below = above
    return None


def one_thread_test(source: Source, node: ast.AST) -> ast.expr | None:
    """The test of an `if` around a node that one thread of a warp passes: `tidx == 0`."""
    below = node
    for above in source.ancestors(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(above, ast.If) and below in above.body and _is_one_thread(source, above.test):
            return above.test
        below = above
    return None


def alone(source: Source, node: ast.AST) -> str:
    """In words, what lets one thread alone come to a node of its function; "" where nothing does."""
    around = election(source, node)
    if around is not None:
        return f"within elect_one (line {around.lineno})"
    test = one_thread_test(source, node)
    return "" if test is None else f"below `if {ast.unparse(test)}`"


def called_helpers(source: Source, call: ast.Call) -> list[FunctionNode]:
    """The traced function of the file that a call reaches, and those that it calls in turn."""
    first = called_function(source, call)
    found = [first] if first is not None and source.traced.get(first) == "jit" else []
    for function in found:
        for inner in walk_function(function):
            other = called_function(source, inner) if isinstance(inner, ast.Call) else None
            if other is not None and source.traced.get(other) == "jit" and other not in found:
                found.append(other)
    return found


def is_index(source: Source, node: ast.expr, of: str) -> bool:
    """Whether an expression is an index that `of()` gives: a name that is bound to nothing else, or `of()[0]`."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        return source.dotted(node.func) == of
    bound = _binding(source, node) if isinstance(node, ast.Name) else None
    return bound is not None and is_index(source, bound, of)


def _binding(source: Source, name: ast.Name) -> ast.expr | None:
    """The value of the only statement that binds a name, itself or with others of one call."""
    function = source.function_of(name)
    if function is None:
        return None
    bound = _bindings(function).get(name.id, ())
    if len(bound) != 1 or not isinstance(bound[0], ast.Assign) or len(bound[0].targets) != 1:
        return None
    value = bound[0].value
    return value if isinstance(value, (ast.Call, ast.Subscript)) else None


@functools.lru_cache(maxsize=16)  # of a kernel of a product 60 names are asked: half the time of its lint otherwise
def _bindings(function: FunctionNode) -> dict[str, list[ast.stmt]]:
    """The statements of a function by the names in what they assign to."""
    found = dict[str, list[ast.stmt]]()
    for node in walk_function(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}:
                found.setdefault(name, []).append(node)
    return found


def _is_one_thread(source: Source, test: ast.expr) -> bool:
    """`tidx == constant`, either way round, `tidx < 1`, `tidx % 32 == 0`, or such a test and others."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_is_one_thread(source, part) for part in test.values)
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return False
    left, right, operation = test.left, test.comparators[0], test.ops[0]
    if isinstance(left, ast.Constant):
        left, right = right, left
        operation = ast.Lt() if isinstance(operation, ast.Gt) else operation
    if not isinstance(right, ast.Constant):
        return False
    few = isinstance(operation, ast.Eq) or (isinstance(operation, ast.Lt) and right.value == 1)
    return few and _is_lane(source, left)


def _is_lane(source: Source, node: ast.expr) -> bool:
    """An index that differs between the lanes of a warp: x of thread_idx(), lane_idx(), or either modulo 32."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return isinstance(node.right, ast.Constant) and node.right.value == _WARP and _is_lane(source, node.left)
    return is_index(source, node, LANE_INDEX) or (is_index(source, node, THREAD_INDEX) and _is_first(source, node))


def _is_first(source: Source, node: ast.expr) -> bool:
    """Whether it is x of a triple: `x, _, _ = thread_idx()`, or `thread_idx()[0]`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == 0
    if not isinstance(node, ast.Name):
        return False
    value = _binding(source, node)
    if isinstance(value, ast.Subscript):
        return _is_first(source, value)
    statement = next(iter(source.ancestors(value)), None) if value is not None else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else None
    return isinstance(first, ast.Name) and first.id == node.id

"""CS201–CS205 and CS210: control flow that the DSL's rewriting cannot express."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cutesmith.lint.rule import Rule
from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source, finding, is_tracer
from cutesmith.lint.staging import NESTED, is_staged, walk_function
from cutesmith.verdicts import Finding

CS201 = Rule(
    "CS201",
    "error",
    "early exit out of a staged if or loop",
    "Every plain `if`, `while` and `for … in range(…)` of a traced function is staged, even when its condition "
    "is a Python value: return, raise, break and continue in it raise DSLUserCodeError: "
    "error[UNSUP_EARLY_EXIT].",
    "Guard the work instead (`if i < n: …`), or, when the condition is known while tracing, write `if "
    "cutlass.const_expr(…)` / `for … in cutlass.range_constexpr(…)`.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        if i >= n:
            return
        gX[i] = gX[i] + gX[i]
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        if i < n:
            gX[i] = gX[i] + gX[i]
    """,
)

CS202 = Rule(
    "CS202",
    "error",
    "break or continue in a staged if within an unrolled loop",
    "The `if` becomes a function of its own, so that `break` and `continue` stand outside any loop: "
    "SyntaxError: 'break' outside loop.",
    "Write the condition as `if cutlass.const_expr(…)`; a run-time condition needs a predicate instead.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        for i in cutlass.range_constexpr(4):
            if i > 2:
                break
            gX[i] = gX[i] + gX[i]
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        for i in cutlass.range_constexpr(4):
            if cutlass.const_expr(i > 2):
                break
            gX[i] = gX[i] + gX[i]
    """,
)

CS203 = Rule(
    "CS203",
    "error",
    "a name first assigned inside a staged if or loop is used after it",
    "A staged region hands back only names that existed before it, even when both branches assign: NameError: "
    "name … is not defined.",
    "Give the name a value of its final type before the region.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        if i < n:
            x = gX[i]
        else:
            x = gX[0]
        gX[i] = x
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        x = gX[0]
        if i < n:
            x = gX[i]
        gX[i] = x
    """,
)

CS204 = Rule(
    "CS204",
    "error",
    "a nested function that captures variables is called in a staged region",
    "error[SCOPE_CLOSURE_CAPTURE]: a function that closes over the kernel's variables, constants too, cannot be "
    "called within a staged if or loop.",
    "Move the function to module level and pass what it needs as arguments.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        def twice(k):
            return gX[k] + gX[k]
        if i < n:
            gX[i] = twice(i)
    """,
    """
    def twice(g, k):
        return g[k] + g[k]

    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        if i < n:
            gX[i] = twice(gX, i)
    """,
)

CS205 = Rule(
    "CS205",
    "error",
    "a statement that traced functions do not support",
    "`for/while … else` (error[UNSUP_LOOP_ELSE]), `global` (error[UNSUP_GLOBAL]) and reading the name `_` "
    "(error[UNSUP_READ_UNDERSCORE]) cannot be compiled.",
    "Put the code of `else` after the loop; pass values as arguments instead of through `global`; name what is read.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        for i in range(n):
            gX[i] = gX[i] + gX[i]
        else:
            gX[0] = gX[1]
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        for i in range(n):
            gX[i] = gX[i] + gX[i]
        gX[0] = gX[1]
    """,
)

CS210 = Rule(
    "CS210",
    "error",
    "the DSL's decorator is not the innermost",
    "A decorator beneath @cute.jit or @cute.kernel hides the function from the DSL: "
    "error[CALL_MISSING_JIT_DECORATOR] or error[UNSUP_DECORATOR_ORDER] when it is compiled.",
    "Put @cute.jit / @cute.kernel directly above `def`.",
    """
    import functools

    @cute.jit
    @functools.cache
    def host(mX: cute.Tensor):
        pass
    """,
    """
    @cute.jit
    def host(mX: cute.Tensor):
        pass
    """,
)

EXITS: dict[type[ast.AST], str] = {
    ast.Return: "return",
    ast.Raise: "raise",
    ast.Break: "break",
    ast.Continue: "continue",
}
LOOPS = (ast.For, ast.While)


def check(source: Source) -> Iterator[Finding]:
    """Findings of CS201–CS205 and CS210 in every traced function, nested functions included."""
    for function in source.functions:
        yield from _decorators(source, function)
        if source.traced.get(function) or source.traced_of(function):
            yield from _exits(source, function)
            yield from _escaping_names(source, function)
            yield from _captures(source, function)
            yield from _statements(source, function)


def _decorators(source: Source, function: FunctionNode) -> Iterator[Finding]:
    """CS210: a decorator beneath the DSL's own."""
    if source.traced.get(function) is None or is_tracer(source, function.decorator_list[-1]):
        return
    below = ast.unparse(function.decorator_list[-1])
    text = f"`@{below}` stands between the DSL's decorator and `def {function.name}`."
    yield finding(CS210, function.decorator_list[-1], text)


def _exits(source: Source, function: FunctionNode) -> Iterator[Finding]:
    for node in walk_function(function):
        kind = EXITS.get(type(node))
        if kind:
            region = _exited_region(source, node, function)
            if region is not None:
                yield _exit_finding(node, kind, region)


def _exited_region(source: Source, node: ast.AST, function: FunctionNode) -> ast.AST | None:
    """The staged statement that the exit leaves: any around a return or raise, else its own loop or an `if` in that."""
    jump = isinstance(node, (ast.Break, ast.Continue))
    staged_if = None
    for ancestor in _ancestors_within(source, node, function):
        if jump and isinstance(ancestor, LOOPS):
            return ancestor if is_staged(ancestor) else staged_if
        if is_staged(ancestor):
            staged_if = staged_if or ancestor
            if not jump:
                return ancestor
    return None


def _exit_finding(node: ast.AST, kind: str, region: ast.AST) -> Finding:
    if kind in ("break", "continue") and isinstance(region, ast.If):
        loop = "a plain `if` of a loop: the DSL stages the `if`, so that the loop is no longer around it"
        return finding(CS202, node, f"`{kind}` in {loop}.")
    word = type(region).__name__.lower()
    line = getattr(region, "lineno", 0)
    return finding(CS201, node, f"`{kind}` leaves the staged `{word}` of line {line} early (error[UNSUP_EARLY_EXIT]).")


def _escaping_names(source: Source, function: FunctionNode) -> Iterator[Finding]:
    """Names whose every assignment before a use lies in a staged region that does not hold the use."""
    stores, loads = _name_uses(function)
    known = _outer_names(source, function)
    reported: set[str] = set()
    for load in loads:
        before = [node for node in stores.get(load.id, []) if _position(node) < _position(load)]
        if load.id in known or load.id in reported or not before:
            continue
        regions = [_region_left(source, node, load, function) for node in before]
        if all(region is not None for region in regions):
            reported.add(load.id)
            line = getattr(regions[-1], "lineno", 0)
            text = f"`{load.id}` is only assigned inside the staged region of line {line} and is undefined after it."
            yield finding(CS203, load, text, f"Assign `{load.id}` before line {line}, with a value of its final type.")


def _name_uses(function: FunctionNode) -> tuple[dict[str, list[ast.Name]], list[ast.Name]]:
    stores: dict[str, list[ast.Name]] = {}
    loads: list[ast.Name] = []
    for statement in function.body:
        for node in (statement, *walk_function(statement)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                stores.setdefault(node.id, []).append(node)
            elif isinstance(node, ast.Name):
                loads.append(node)
    return stores, loads


def _outer_names(source: Source, function: FunctionNode) -> set[str]:
    """Parameters, nested definitions, imports, and names bound in the scopes around the function."""
    scope = source.scopes.inner_scope(function)
    own = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    for node in walk_function(function):
        if isinstance(node, NESTED) and not isinstance(node, ast.Lambda):
            own.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            own.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            own.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return own | scope.outer_names


def _region_left(source: Source, store: ast.AST, load: ast.AST, function: FunctionNode) -> ast.AST | None:
    """The outermost staged statement around the store that is not around the load (its test counts as outside)."""
    around = set(source.ancestors(load))
    found = None
    for ancestor in source.ancestors(store):
        if ancestor is function:
            break
        if is_staged(ancestor) and ancestor not in around and not _in_header(source, store, ancestor):
            found = ancestor
    return found


def _in_header(source: Source, node: ast.AST, region: ast.AST) -> bool:
    """Whether a node stands in the test of an if or while, which runs before the region."""
    test = getattr(region, "test", None)
    return test is not None and (node is test or test in source.ancestors(node))


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _captures(source: Source, function: FunctionNode) -> Iterator[Finding]:
    closures = {
        node.name: captured
        for node in walk_function(function)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (captured := _captured(source, node, function))
    }
    for node in walk_function(function):
        name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if name in closures and any(is_staged(a) for a in _ancestors_within(source, node, function)):
            variables = ", ".join(f"`{variable}`" for variable in sorted(closures[name])[:3])
            yield finding(CS204, node, f"`{name}` captures {variables} and is called in a staged region.")


def _captured(source: Source, nested: FunctionNode, function: FunctionNode) -> set[str]:
    """Names that a nested function reads from the function around it."""
    home = source.scopes.inner_scope(function)
    names = (node for node in ast.walk(nested) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    inside = {id(child) for statement in nested.body for child in ast.walk(statement)}
    return {node.id for node in names if id(node) in inside and source.scopes.scope_of(node).find(node.id) is home}


def _ancestors_within(source: Source, node: ast.AST, function: FunctionNode) -> Iterator[ast.AST]:
    for ancestor in source.ancestors(node):
        if ancestor is function:
            return
        yield ancestor


def _statements(source: Source, function: FunctionNode) -> Iterator[Finding]:
    for node in walk_function(function):
        if isinstance(node, LOOPS) and node.orelse and is_staged(node):
            yield finding(CS205, node.orelse[0], "`else` of a loop cannot be compiled (error[UNSUP_LOOP_ELSE]).")
        elif isinstance(node, ast.Global):
            yield finding(CS205, node, "`global` cannot be compiled (error[UNSUP_GLOBAL]).")
        elif isinstance(node, ast.Name) and node.id == "_" and isinstance(node.ctx, ast.Load):
            yield finding(CS205, node, "The throwaway name `_` cannot be read (error[UNSUP_READ_UNDERSCORE]).")

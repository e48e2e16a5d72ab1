"""CS206, CS209 and CS211: values that meet staged control flow, and helpers that the DSL does not rewrite."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cutesmith.lint.rule import Rule
from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source, finding
from cutesmith.lint.staging import is_staged, walk_function
from cutesmith.lint.values import FLOATS, Values
from cutesmith.verdicts import Finding

CS206 = Rule(
    "CS206",
    "error",
    "a loop or branch changes the type of a name",
    "error[TYPE_UNSTABLE_JOIN]: a name that is an integer (or None, or a list that grows) before a staged "
    "region and a float after it has no single type where the paths meet.",
    "Start with the final type: `cutlass.Float32(0.0)` (or `0.0`) for a float sum; unroll with "
    "`cutlass.range_constexpr` where a Python list is filled.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        s = 0
        for i in range(n):
            s += gX[i].to(cutlass.Float32)
        gX[0] = s.to(gX.element_type)
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        s = cutlass.Float32(0.0)
        for i in range(n):
            s += gX[i].to(cutlass.Float32)
        gX[0] = s.to(gX.element_type)
    """,
)

CS211 = Rule(
    "CS211",
    "error",
    "a loop of the DSL in a helper without @cute.jit",
    "Only decorated functions are rewritten. `cutlass.range_constexpr` and `cutlass.range` in a plain helper end in "
    "error[INTERNAL], which calls it a bug of the DSL: should be preprocessed by preprocessor.",
    "Decorate the helper with @cute.jit, or loop with Python's own `range` over numbers that are known while tracing.",
    """
    def total(gX):
        s = cutlass.Float32(0.0)
        for i in cutlass.range_constexpr(4):
            s += gX[i]
        return s

    @cute.kernel
    def kernel(gX: cute.Tensor):
        gX[0] = total(gX)
    """,
    """
    @cute.jit
    def total(gX):
        s = cutlass.Float32(0.0)
        for i in cutlass.range_constexpr(4):
            s += gX[i]
        return s

    @cute.kernel
    def kernel(gX: cute.Tensor):
        gX[0] = total(gX)
    """,
)
DSL_RANGES = frozenset({"range_constexpr", "range", "range_dynamic"})

CS209 = Rule(
    "CS209",
    "warning",
    "a helper without @cute.jit branches on a run-time value",
    "Only decorated functions are rewritten: a plain helper's `if` or `for … in range(…)` over a run-time value "
    "raises error[PHASE_DYNAMIC_TO_STATIC_BOOL] or error[PHASE_DYNAMIC_INDEX] when a kernel calls it.",
    "Decorate the helper with @cute.jit (and give it a single exit).",
    """
    def clamp(x, high: cutlass.Int32):
        if x > high:
            x = high
        return x

    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        gX[clamp(i, n)] = gX[i]
    """,
    """
    @cute.jit
    def clamp(x, high: cutlass.Int32):
        if x > high:
            x = high
        return x

    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        gX[clamp(i, n)] = gX[i]
    """,
)


def check(source: Source) -> Iterator[Finding]:
    """Findings about names that change type in a staged region, and about helpers that branch on run-time values."""
    for function in source.functions:
        if source.traced.get(function) or source.traced_of(function):
            yield from _unstable_names(Values(source, function))
    yield from _helpers(source)


def _unstable_names(values: Values) -> Iterator[Finding]:
    """Names that start as an integer, None or an empty list and change type in a staged region."""
    start = {
        node.targets[0].id: node
        for node in values.function.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    reported: set[str] = set()
    for region in (node for node in walk_function(values.function) if is_staged(node)):
        for node in walk_function(region):
            name, kind = _changed(values, node, start)
            if name and name not in reported:
                reported.add(name)
                line = start[name].lineno
                yield finding(
                    CS206, node, f"`{name}` is {kind} after it was set in line {line}: error[TYPE_UNSTABLE_JOIN]."
                )


def _changed(values: Values, node: ast.AST, start: dict[str, ast.Assign]) -> tuple[str, str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        name = getattr(node.func.value, "id", "")
        empty = name in start and isinstance(start[name].value, ast.List) and len(values.assigned.get(name, [])) == 1
        return (name, "a list that grows in a staged region") if empty else ("", "")
    if not isinstance(node, (ast.Assign, ast.AugAssign)):
        return "", ""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    name = target.id if isinstance(target, ast.Name) else ""
    if name not in start or start[name].lineno >= node.lineno or not _starts_as_integer(start[name].value):
        return "", ""
    divides = isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div)
    floating = divides or _is_float(values, node.value)
    return (name, "an integer that becomes a float") if floating and _no_float_start(values, name) else ("", "")


def _no_float_start(values: Values, name: str) -> bool:
    """Every whole-statement assignment of the name outside regions is an integer."""
    own = [n for n in values.function.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == name]
    return all(_starts_as_integer(node.value) for node in own)


def _starts_as_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_float(values: Values, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div) or _is_float(values, node.left) or _is_float(values, node.right)
    return values.dtype(node) in FLOATS | {"float"}


def _helpers(source: Source) -> Iterator[Finding]:
    """CS209 and CS211: undecorated helpers of traced functions; methods that they call on `self` are helpers too."""
    calls = [node.func for node in source.all(ast.Call) if source.traced_of(node) is not None]
    called = {func.id for func in calls if isinstance(func, ast.Name)}
    methods = {func.attr for func in calls if isinstance(func, ast.Attribute) and ast.unparse(func.value) == "self"}
    for function in source.functions:
        if function.decorator_list:
            continue
        if function.name in methods and isinstance(source.parents[function], ast.ClassDef):
            yield from _loops_of_the_dsl(source, function)
        if function.name in called and source.top_level(function.name) is function:
            yield from _loops_of_the_dsl(source, function)
            values = Values(source, function)
            for node in walk_function(function):
                if is_staged(node) and _depends_on_runtime(values, node):
                    yield finding(CS209, node, f"`{function.name}` has no @cute.jit, yet branches on a run-time value.")
                    break


def _loops_of_the_dsl(source: Source, function: FunctionNode) -> Iterator[Finding]:
    """CS211: ranges that only the DSL's preprocessor understands, in a helper that it does not rewrite."""
    for node in walk_function(function):
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
            name = source.dotted(node.iter.func) or ""
            if name.startswith("cutlass.") and name.rpartition(".")[2] in DSL_RANGES:
                text = f"`{ast.unparse(node.iter.func)}` in `{function.name}`, which has no @cute.jit: error[INTERNAL]."
                yield finding(CS211, node.iter, text)


def _depends_on_runtime(values: Values, node: ast.AST) -> bool:
    if isinstance(node, ast.For):
        return isinstance(node.iter, ast.Call) and any(values.is_runtime(argument) for argument in node.iter.args)
    test = getattr(node, "test", None)
    if isinstance(test, ast.Compare) and not any(
        isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in test.ops
    ):
        return any(values.is_runtime(side) for side in (test.left, *test.comparators))
    return isinstance(test, ast.expr) and values.is_runtime(test)

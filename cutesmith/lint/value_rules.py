"""CS206–CS209 and CS301–CS306: types and dtypes of values in traced functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cutesmith.lint.source import Source, finding
from cutesmith.lint.staging import is_staged, walk_function
from cutesmith.lint.values import FLOATS, INTEGERS, Values
from cutesmith.verdicts import Finding

HALF = re.compile(r"\b(float16|bfloat16|Float16|BFloat16|fp16|bf16|half)\b")
PROMOTING = (ast.Add, ast.Sub, ast.Mult, ast.Div)
BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
INT32_MAX = 0x7FFFFFFF
UINT32_MAX = 0xFFFFFFFF
PYTHON_NUMBERS = ("int", "float")


def check(source: Source) -> Iterator[Finding]:
    """Findings about values in every traced function, and about helpers that traced functions call."""
    for function in source.functions:
        if source.traced.get(function) or source.traced_of(function):
            values = Values(source, function)
            yield from _calls(source, values)
            yield from _arithmetic(values)
            yield from _stores(source, values)
            yield from _unstable_names(values)
    yield from _helpers(source)


def _calls(source: Source, values: Values) -> Iterator[Finding]:
    for node in walk_function(values.function):
        if not isinstance(node, ast.Call):
            continue
        dotted = source.dotted(node.func) or ""
        if dotted == "cutlass.cute.where" and len(node.args) == 3:
            yield from _where(values, node)
        elif isinstance(node.func, ast.Name) and node.func.id == "print" and _prints_value(node):
            yield finding("CS207", node, "`print` runs while the kernel is traced; run-time values print as `?`.")
        elif dotted.startswith("math.") or (isinstance(node.func, ast.Name) and node.func.id in PYTHON_NUMBERS):
            yield from _python_number(values, node, dotted)
        if dotted == "cutlass.cute.make_copy_atom":
            yield from _invariant_load(node)
        for keyword in node.keywords:
            if keyword.arg == "mcast_mask" and values.dtype(keyword.value) == "int":
                yield finding("CS305", keyword.value, "mcast_mask is a Python integer; a TMA copy needs a DSL integer.")


def _where(values: Values, node: ast.Call) -> Iterator[Finding]:
    for this, other in ((node.args[1], node.args[2]), (node.args[2], node.args[1])):
        if values.is_number(this) and not values.is_number(other):
            own = "Int32" if values.dtype(this) == "int" else "Float32"
            evident = values.dtype(other)
            if evident == own:
                continue
            severity = "error" if evident in FLOATS | INTEGERS else ""
            like = ast.unparse(other) if len(ast.unparse(other)) < 30 else "x"
            text = f"`{ast.unparse(this)}` is {own}; cute.where needs the dtype of the other value" + (
                f", {evident}." if evident in FLOATS | INTEGERS else "."
            )
            yield finding("CS302", this, text, f"Write `cute.full_like({like}, {ast.unparse(this)})`.", severity)


def _invariant_load(node: ast.Call) -> Iterator[Finding]:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    invariant, priority = keywords.get("invariant"), keywords.get("l1c_evict_priority")
    plain = priority is None or ast.unparse(priority).endswith("EVICT_NORMAL")
    if isinstance(invariant, ast.Constant) and invariant.value is True and not plain:
        yield finding("CS306", node, "invariant=True and an l1c_evict_priority exclude each other.")


def _prints_value(node: ast.Call) -> bool:
    return any(not isinstance(argument, ast.Constant) for argument in node.args)


def _python_number(values: Values, node: ast.Call, dotted: str) -> Iterator[Finding]:
    for argument in node.args:
        if values.is_runtime(argument):
            name = dotted or getattr(node.func, "id", "")
            text = f"`{name}` needs a Python number, but `{ast.unparse(argument)}` is known only at run time."
            fix = f"Use `cute.math.{name[5:]}`." if dotted else ""
            yield finding("CS208", node, text, fix)
            return


def _arithmetic(values: Values) -> Iterator[Finding]:
    for node in walk_function(values.function):
        if not isinstance(node, (ast.BinOp, ast.AugAssign)):
            continue
        left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        if isinstance(node.op, BITWISE):
            yield from _wide_masks(values, left, right)
        elif isinstance(node.op, ast.Div) and values.is_vector(left) and values.dtype(left) in INTEGERS:
            text = f"`/` on an integer vector: the result holds floats under the label {values.dtype(left)}."
            yield finding("CS304", node, text)


def _wide_masks(values: Values, left: ast.expr, right: ast.expr) -> Iterator[Finding]:
    for this, other in ((left, right), (right, left)):
        if isinstance(this, ast.Constant) and isinstance(this.value, int) and INT32_MAX < this.value <= UINT32_MAX:
            wide = values.dtype(other) in ("Int64", "Uint64", "int")
            if not wide and not isinstance(other, ast.Constant):
                text = f"{hex(this.value)} is an Int64, and so is the result."
                yield finding("CS303", this, text, f"Write `cutlass.Uint32({hex(this.value)})`.")


def _stores(source: Source, values: Values) -> Iterator[Finding]:
    if not HALF.search(source.text):
        return
    for node in walk_function(values.function):
        stored = _stored_value(values, node)
        promoted = _promotion(values, stored) if stored is not None else None
        if stored is not None and promoted is not None:
            text = f"`{ast.unparse(promoted)}` turns a 16-bit value into Float32, and the result is stored as it is."
            target = _store_target(node)
            yield finding("CS301", stored, text, f"Store `({ast.unparse(stored)}).to({target}.element_type)`.")


def _stored_value(values: Values, node: ast.AST) -> ast.expr | None:
    """The value of `t.store(value)`, or of `gX[i] = value` where gX is a tensor parameter."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "store":
        return node.args[0] if len(node.args) == 1 else None
    if isinstance(node, ast.Assign) and values.is_element(node.targets[0]):
        return node.value
    return None


def _store_target(node: ast.AST) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "func", None)
    return ast.unparse(target.value) if isinstance(target, (ast.Attribute, ast.Subscript)) else "out"


def _promotion(values: Values, node: ast.expr, depth: int = 0) -> ast.BinOp | None:
    """The first operation that mixes a value as it was loaded with a number or a Float32."""
    if depth > 4:
        return None
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, PROMOTING):
            for this, other in ((node.left, node.right), (node.right, node.left)):
                if _raw(values, this) and values.dtype(other) in ("int", "float", "Float32"):
                    return node
        return _promotion(values, node.left, depth + 1) or _promotion(values, node.right, depth + 1)
    if isinstance(node, ast.UnaryOp):
        return _promotion(values, node.operand, depth + 1)
    value = values.single(node)
    return _promotion(values, value, depth + 1) if value is not None else None


def _raw(values: Values, node: ast.expr) -> bool:
    """A loaded vector or a tensor element as it came, without any conversion or call in between."""
    value = values.single(node)
    node = value if value is not None else node
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "load" and values.is_tensor(node.func.value)
    return values.is_element(node)


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
                    "CS206", node, f"`{name}` is {kind} after it was set in line {line}: error[TYPE_UNSTABLE_JOIN]."
                )


def _changed(values: Values, node: ast.AST, start: dict[str, ast.Assign]) -> tuple[str, str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        name = getattr(node.func.value, "id", "")
        empty = name in start and isinstance(start[name].value, ast.List) and _only_start(values, name)
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


def _only_start(values: Values, name: str) -> bool:
    return len(values.assigned.get(name, [])) == 1


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
    """CS209: undecorated helpers of traced functions with control flow over DSL-typed parameters."""
    called = {
        node.func.id
        for node in source.all(ast.Call)
        if isinstance(node.func, ast.Name) and source.traced_of(node) is not None
    }
    for function in source.functions:
        if function.name in called and not function.decorator_list and source.top_level(function.name) is function:
            values = Values(source, function)
            for node in walk_function(function):
                if is_staged(node) and _depends_on_runtime(values, node):
                    yield finding(
                        "CS209", node, f"`{function.name}` has no @cute.jit, yet branches on a run-time value."
                    )
                    break


def _depends_on_runtime(values: Values, node: ast.AST) -> bool:
    if isinstance(node, ast.For):
        return isinstance(node.iter, ast.Call) and any(values.is_runtime(argument) for argument in node.iter.args)
    test = getattr(node, "test", None)
    if isinstance(test, ast.Compare) and not any(
        isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in test.ops
    ):
        return any(values.is_runtime(side) for side in (test.left, *test.comparators))
    return isinstance(test, ast.expr) and values.is_runtime(test)

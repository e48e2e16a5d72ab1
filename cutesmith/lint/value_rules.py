"""CS207, CS208 and CS301–CS307: values in traced functions, and their dtypes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cutesmith.lint.rule import Rule
from cutesmith.lint.source import Source, finding
from cutesmith.lint.staging import walk_function
from cutesmith.lint.values import FLOATS, INTEGERS, Values
from cutesmith.verdicts import Finding

CS207 = Rule(
    "CS207",
    "note",
    "Python's print in a traced function",
    "`print` runs once, while the function is traced: a run-time value prints as `?`.",
    'Use `cute.printf("{}", value)` for run-time values.',
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        print(i)
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        cute.printf("{}", i)
    """,
)

CS208 = Rule(
    "CS208",
    "error",
    "a Python function that needs a number gets a run-time value",
    "`math.exp`, `int()` and `float()` ask for a Python number: error[PHASE_DYNAMIC_INDEX] on tensor elements "
    "and thread indices.",
    "Use `cute.math.…` for functions, `cutlass.Int32(…)`, `cutlass.Float32(…)` or `.to(…)` for conversions.",
    """
    import math

    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        gX[i] = math.exp(gX[i])
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        gX[i] = cute.math.exp(gX[i])
    """,
)

CS301 = Rule(
    "CS301",
    "warning",
    "a promoted value is stored into a 16-bit tensor",
    "A Float16 or BFloat16 value times, plus or minus a Python number (or a Float32) becomes Float32, for "
    "scalars and for `.load()` values; storing it raises ValueError: Type mismatch, store Float32 … to "
    "Tensor with element type Float16. `x + x` keeps the type.",
    "Convert before the store: `(expression).to(out.element_type)`.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, gOut: cute.Tensor):
        x = gX.load()
        gOut.store(x * 2)

    DTYPE = torch.float16
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, gOut: cute.Tensor):
        x = gX.load()
        gOut.store((x * 2).to(gOut.element_type))

    DTYPE = torch.float16
    """,
)

CS302 = Rule(
    "CS302",
    "warning",
    "cute.where with a bare number",
    "Both values need one dtype: a bare `0` is Int32 and a bare `0.0` is Float32, hence ValueError: x and y "
    "must have the same dtype, but got Float16 and Int32. Only `0.0` with Float32 and `0` with Int32 work.",
    "Write `cute.full_like(x, 0)` for the number.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        x = gX.load()
        gX.store(cute.where(x > 0, x, 0))
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        x = gX.load()
        gX.store(cute.where(x < 0, cute.full_like(x, 0), x))
    """,
)

CS303 = Rule(
    "CS303",
    "warning",
    "a mask of 2**31 or more widens the result to 64 bits",
    "A Python integer above 0x7FFFFFFF is an Int64: `Uint32(x) & 0xFFFF0000` gives Int64, which costs registers "
    "and breaks code that expects 32 bits.",
    "Wrap the literal: `cutlass.Uint32(0xFFFF0000)`.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        high = cutlass.Uint32(i) & 0xFFFF0000
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        high = cutlass.Uint32(i) & cutlass.Uint32(0xFFFF0000)
    """,
)

CS304 = Rule(
    "CS304",
    "warning",
    "true division of integer vectors",
    "`/` on an integer `.load()` value computes in Float32 but the result is labelled Int32: what follows reads "
    "it wrong.",
    "Use `//`, or convert first: `x.to(cutlass.Float32) / 2.0`.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        x = gX.load().to(cutlass.Int32)
        half = x / 2
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        x = gX.load().to(cutlass.Int32)
        half = x // 2
    """,
)

CS305 = Rule(
    "CS305",
    "error",
    "mcast_mask is a Python integer",
    'A TMA multicast mask must be a DSL integer; a Python one is dropped and the error misleads: "expects a '
    'multicast mask to be provided".',
    "Wrap it: `mcast_mask=cutlass.Int16(mask)`.",
    """
    @cute.kernel
    def kernel(atom: cute.CopyAtom, gX: cute.Tensor, sX: cute.Tensor):
        cute.copy(atom, gX, sX, mcast_mask=3)
    """,
    """
    @cute.kernel
    def kernel(atom: cute.CopyAtom, gX: cute.Tensor, sX: cute.Tensor):
        cute.copy(atom, gX, sX, mcast_mask=cutlass.Int16(3))
    """,
)

CS306 = Rule(
    "CS306",
    "error",
    "an invariant load with an L1 eviction priority",
    "`CopyG2ROp` takes `invariant=True` or an `l1c_evict_priority`, not both: TypeError: invariant_load is not "
    "allowed when the other non-default memory features are set.",
    "Leave one of the two out (plain `ld.global.nc` was the faster on an H200).",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        atom = cute.make_copy_atom(
            cute.nvgpu.CopyG2ROp(),
            gX.element_type,
            num_bits_per_copy=128,
            invariant=True,
            l1c_evict_priority=cute.nvgpu.CacheEvictionPriority.NO_ALLOCATE,
        )
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        atom = cute.make_copy_atom(cute.nvgpu.CopyG2ROp(), gX.element_type, num_bits_per_copy=128, invariant=True)
    """,
)

CS307 = Rule(
    "CS307",
    "warning",
    "a maximum or minimum with an unsigned constant first",
    "`cutlass.max`, `cutlass.min`, `max` and `min` forget that a value is unsigned where a constant comes first: "
    "`max(Uint32(0), x)` compiles to max.s32, and is 0 for x from 2**31 on, without an error.",
    "Put the constant last, `cutlass.max(x, Uint32(0))`, or write `a if a > b else b`.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        gX[i] = cutlass.max(cutlass.Uint32(0), gX[i])
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor):
        i, _, _ = cute.arch.thread_idx()
        gX[i] = cutlass.max(gX[i], cutlass.Uint32(0))
    """,
)

HALF = re.compile(r"\b(float16|bfloat16|Float16|BFloat16|fp16|bf16|half)\b")
PROMOTING = (ast.Add, ast.Sub, ast.Mult, ast.Div)
BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
INT32_MAX = 0x7FFFFFFF
UINT32_MAX = 0xFFFFFFFF
PYTHON_NUMBERS = ("int", "float")
EXTREMES = ("cutlass.max", "cutlass.min")
UNSIGNED = ("cutlass.Uint32", "cutlass.Uint64")


def check(source: Source) -> Iterator[Finding]:
    """Findings about values in every traced function."""
    for function in source.functions:
        if source.traced.get(function) or source.traced_of(function):
            values = Values(source, function)
            yield from _calls(source, values)
            yield from _arithmetic(values)
            yield from _stores(source, values)


def _calls(source: Source, values: Values) -> Iterator[Finding]:
    for node in walk_function(values.function):
        if not isinstance(node, ast.Call):
            continue
        dotted = source.dotted(node.func) or ""
        if dotted == "cutlass.cute.where" and len(node.args) == 3:
            yield from _where(values, node)
        elif isinstance(node.func, ast.Name) and node.func.id == "print" and _prints_value(node):
            yield finding(CS207, node, "`print` runs while the kernel is traced; run-time values print as `?`.")
        elif dotted.startswith("math.") or (isinstance(node.func, ast.Name) and node.func.id in PYTHON_NUMBERS):
            yield from _python_number(values, node, dotted)
        if dotted in EXTREMES or (isinstance(node.func, ast.Name) and node.func.id in ("max", "min")):
            yield from _unsigned_first(source, node)
        if dotted == "cutlass.cute.make_copy_atom":
            yield from _invariant_load(node)
        for keyword in node.keywords:
            if keyword.arg == "mcast_mask" and values.dtype(keyword.value) == "int":
                yield finding(CS305, keyword.value, "mcast_mask is a Python integer; a TMA copy needs a DSL integer.")


def _unsigned_first(source: Source, node: ast.Call) -> Iterator[Finding]:
    constants = [_is_unsigned_constant(source, argument) for argument in node.args]
    if len(constants) > 1 and constants[0] and not all(constants):
        text = f"`{ast.unparse(node)}` compares as signed: its first argument is a constant."
        yield finding(CS307, node, text)


def _is_unsigned_constant(source: Source, node: ast.expr) -> bool:
    """Whether it is a call such as `cutlass.Uint32(0)`."""
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Constant)):
        return False
    return (source.dotted(node.func) or "") in UNSIGNED


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
            yield finding(CS302, this, text, f"Write `cute.full_like({like}, {ast.unparse(this)})`.", severity)


def _invariant_load(node: ast.Call) -> Iterator[Finding]:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    invariant, priority = keywords.get("invariant"), keywords.get("l1c_evict_priority")
    plain = priority is None or ast.unparse(priority).endswith("EVICT_NORMAL")
    if isinstance(invariant, ast.Constant) and invariant.value is True and not plain:
        yield finding(CS306, node, "invariant=True and an l1c_evict_priority exclude each other.")


def _prints_value(node: ast.Call) -> bool:
    return any(not isinstance(argument, ast.Constant) for argument in node.args)


def _python_number(values: Values, node: ast.Call, dotted: str) -> Iterator[Finding]:
    for argument in node.args:
        if values.is_runtime(argument):
            name = dotted or getattr(node.func, "id", "")
            text = f"`{name}` needs a Python number, but `{ast.unparse(argument)}` is known only at run time."
            fix = f"Use `cute.math.{name[5:]}`." if dotted else ""
            yield finding(CS208, node, text, fix)
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
            yield finding(CS304, node, text)


def _wide_masks(values: Values, left: ast.expr, right: ast.expr) -> Iterator[Finding]:
    for this, other in ((left, right), (right, left)):
        if isinstance(this, ast.Constant) and isinstance(this.value, int) and INT32_MAX < this.value <= UINT32_MAX:
            wide = values.dtype(other) in ("Int64", "Uint64", "int")
            if not wide and not isinstance(other, ast.Constant):
                text = f"{hex(this.value)} is an Int64, and so is the result."
                yield finding(CS303, this, text, f"Write `cutlass.Uint32({hex(this.value)})`.")


def _stores(source: Source, values: Values) -> Iterator[Finding]:
    if not HALF.search(source.text):
        return
    for node in walk_function(values.function):
        stored = _stored_value(values, node)
        promoted = _promotion(values, stored) if stored is not None else None
        if stored is not None and promoted is not None:
            text = f"`{ast.unparse(promoted)}` turns a 16-bit value into Float32, and the result is stored as it is."
            target = _store_target(node)
            yield finding(CS301, stored, text, f"Store `({ast.unparse(stored)}).to({target}.element_type)`.")


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

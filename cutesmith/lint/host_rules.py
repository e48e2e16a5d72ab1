"""CS401–CS408: compiling, caching and passing tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cutesmith.lint.call_graph import called_function, host_functions, is_conditional, own_calls
from cutesmith.lint.rule import Rule
from cutesmith.lint.source import Source, finding
from cutesmith.verdicts import Finding

_HOST = """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            gX[i] = gX[i] + gX[i]

        @cute.jit
        def host(mX: cute.Tensor):
            kernel(mX).launch(grid=[1, 1, 1], block=[32, 1, 1])
"""
_CACHED = (
    _HOST
    + """
        import functools

        @functools.cache
        def compiled(dtype):
            n = cute.sym_int(divisibility=8)
            fake = cute.runtime.make_fake_compact_tensor(dtype, (n,), assumed_align=16)
            return cute.compile(host, fake, options="--enable-tvm-ffi")

        def kernel_fn(x):
            out = torch.empty_like(x)
            compiled(cutlass.Float32)(out)
            return out
"""
)
CS401 = Rule(
    "CS401",
    "error",
    "kernel_fn calls a @cute.jit function directly",
    "A direct call traces the function again every time: 16–20 ms a call, against 6 µs for a compiled object.",
    "Compile once with cute.compile in a cached helper, and call what it returns.",
    _HOST + "\n        def kernel_fn(x):\n            host(from_dlpack(x, assumed_align=16))\n            return x\n",
    _CACHED,
)

CS402 = Rule(
    "CS402",
    "error",
    "kernel_fn compiles at every call",
    "`cute.compile` never caches: each call traces and compiles again (0.1 s for a small kernel, seconds for a GEMM).",
    "Compile in a helper under @functools.cache (keyed by dtype and static sizes), or keep the object in a dict "
    "that is asked first.",
    _HOST
    + """
        def kernel_fn(x):
            compiled = cute.compile(host, from_dlpack(x, assumed_align=16), options="--enable-tvm-ffi")
            compiled(x)
            return x
        """,
    _CACHED,
)

CS403 = Rule(
    "CS403",
    "warning",
    "from_dlpack without assumed_align",
    "Without it the pointer is taken to be aligned to one element: a 128-bit copy is refused (ptr alignment (16 "
    "bits) does not meet requirement (128 bits)) and loads are not vectorised.",
    "Pass `assumed_align=16`: torch allocations are aligned to 16 bytes and more, though slices of them need not be.",
    "def convert(x):\n    return from_dlpack(x)",
    "def convert(x):\n    return from_dlpack(x, assumed_align=16)",
)

CS404 = Rule(
    "CS404",
    "error",
    "a dynamic layout whose leading dimension cannot be found",
    "`mark_layout_dynamic()` on a tensor of more than one dimension and one element raises RuntimeError: Can't "
    "deduce the leading dimension from layout.",
    "Pass `leading_dim=…`, or compile with a fake tensor (`cute.runtime.make_fake_compact_tensor`).",
    "def one():\n    return from_dlpack(torch.empty(1, 1), assumed_align=16).mark_layout_dynamic()",
    "def one():\n    return from_dlpack(torch.empty(1, 1), assumed_align=16).mark_layout_dynamic(leading_dim=1)",
)

CS405 = Rule(
    "CS405",
    "error",
    "postponed annotations in a file with @cute.struct",
    "`@cute.struct` reads raw annotations; with `from __future__ import annotations` they are strings: "
    "TypeError: Struct element only support struct/array/base_dsl scalar.",
    "Remove the `from __future__ import annotations`.",
    """from __future__ import annotations

@cute.struct
class Storage:
    sums: cute.struct.MemRange[cutlass.Float32, 32]
""",
    """
    @cute.struct
    class Storage:
        sums: cute.struct.MemRange[cutlass.Float32, 32]
    """,
)

CS406 = Rule(
    "CS406",
    "note",
    "compiled without TVM-FFI",
    "Through TVM-FFI a compiled kernel takes torch tensors as they are: 6 µs of host time a call on an H200, "
    "against 25 µs through from_dlpack.",
    'Pass `options="--enable-tvm-ffi"` to cute.compile (needs apache-tvm-ffi), and torch tensors to the '
    "compiled object.",
    _CACHED.replace(', options="--enable-tvm-ffi"', ""),
    _CACHED,
)

CS407 = Rule(
    "CS407",
    "error",
    "cute.compile of something that is not a @cute.jit function",
    "A lambda, a plain function or a @cute.kernel cannot be compiled: error[CALL_MISSING_JIT_DECORATOR] or "
    "error[CALL_KERNEL_TARGET].",
    "Compile the @cute.jit function that launches the kernel.",
    _HOST + "\n        def compiled(x):\n            return cute.compile(kernel, x, options='--enable-tvm-ffi')\n",
    _HOST + "\n        def compiled(x):\n            return cute.compile(host, x, options='--enable-tvm-ffi')\n",
)

CS408 = Rule(
    "CS408",
    "error",
    "kernel source from a string",
    "The DSL reads a function's source file: functions made by `exec` raise error[UNSUP_NO_SOURCE]. Only a "
    "`linecache` entry made before `exec` gives them a source.",
    "Write the kernel into the file itself.",
    'SOURCE = """\n@cute.jit\ndef host(x):\n    pass\n"""\nexec(SOURCE, globals())',
    "@cute.jit\ndef host(x):\n    pass",
)

COMPILE = "cutlass.cute.compile"
FROM_DLPACK = ("cutlass.cute.runtime.from_dlpack",)
KERNEL_SOURCE = re.compile(r"@\s*(\w+\.)*(jit|kernel)\b")
FACTORIES = frozenset({"empty", "zeros", "ones", "rand", "randn", "full", "empty_strided"})


def check(source: Source) -> Iterator[Finding]:
    """Findings of CS401–CS408 in one file."""
    yield from _direct_calls(source)
    yield from _compile_calls(source)
    yield from _conversions(source)
    yield from _dynamic_layouts(source)
    yield from _structs(source)
    yield from _executed_sources(source)


def _direct_calls(source: Source) -> Iterator[Finding]:
    for function in host_functions(source, every_call=True):
        for call in own_calls(function):
            called = called_function(source, call)
            if called is not None and source.traced.get(called) == "jit":
                text = f"`{function.name}` calls the @cute.jit function `{called.name}` directly: traced at every call."
                yield finding(
                    CS401, call, text, f"compiled = cute.compile({called.name}, …) once; then call compiled(…)."
                )


def _compile_calls(source: Source) -> Iterator[Finding]:
    every_call = host_functions(source, every_call=True)
    repeated = {id(call): function for function in every_call for call in own_calls(function)}
    for call in source.all(ast.Call):
        if _compile_name(source, call) != COMPILE:
            continue
        yield from _compile_target(source, call)
        function = repeated.get(id(call))
        if function is not None and (not is_conditional(source, call, function) or _called_at_once(source, call)):
            yield finding(CS402, call, f"`{function.name}` compiles at every call; cute.compile keeps nothing.")
        if source.top_level("kernel_fn") is not None and not _asks_for_tvm_ffi(source, call):
            yield finding(CS406, call, "Compiled without TVM-FFI: 25 µs of host time a call instead of 6 µs.")


def _called_at_once(source: Source, call: ast.Call) -> bool:
    """Whether what was compiled is called on the spot, so that nothing can keep it: `cute.compile(f, x)(x)`."""
    above = source.parents.get(call)
    return isinstance(above, ast.Call) and above.func is call


def _compile_name(source: Source, call: ast.Call) -> str | None:
    """The name of `cute.compile(…)`, and of `cute.compile[options](…)` too."""
    return source.dotted(call.func.value if isinstance(call.func, ast.Subscript) else call.func)


def _asks_for_tvm_ffi(source: Source, call: ast.Call) -> bool:
    """Whether TVM-FFI is on, or may be: options that are not literals are trusted."""
    if isinstance(call.func, ast.Subscript) or "ENABLE_TVM_FFI" in source.text:
        return True
    options = [keyword.value for keyword in call.keywords if keyword.arg in ("options", None)]
    return any(not isinstance(o, ast.Constant) or "tvm-ffi" in str(o.value) for o in options)


def _compile_target(source: Source, call: ast.Call) -> Iterator[Finding]:
    target = call.args[0] if call.args else None
    if isinstance(target, ast.Lambda):
        yield finding(CS407, target, "A lambda cannot be compiled: error[CALL_MISSING_JIT_DECORATOR].")
    if not isinstance(target, ast.Name):
        return
    home = source.scopes.scope_of(target).find(target.id)
    function = source.top_level(target.id) if home is not None and isinstance(home.node, ast.Module) else None
    if function is None or len(home.bindings[target.id]) != 1:  # type: ignore[union-attr]
        return
    traced = source.traced.get(function)
    if traced == "kernel":
        text = f"`{target.id}` is a @cute.kernel: error[CALL_KERNEL_TARGET]."
        yield finding(CS407, target, text, f"Compile the @cute.jit function that launches `{target.id}`.")
    elif traced is None and not function.decorator_list:
        text = f"`{target.id}` has no @cute.jit: error[CALL_MISSING_JIT_DECORATOR]."
        yield finding(CS407, target, text, f"Decorate `{target.id}` with @cute.jit.")


def _conversions(source: Source) -> Iterator[Finding]:
    for call in source.calls(*FROM_DLPACK):
        named = any(keyword.arg in ("assumed_align", None) for keyword in call.keywords)
        if not named and len(call.args) < 2:
            yield finding(
                CS403, call, "from_dlpack without assumed_align: the pointer counts as aligned to one element only."
            )


def _dynamic_layouts(source: Source) -> Iterator[Finding]:
    for call in source.all(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "mark_layout_dynamic":
            continue
        if not call.args and not call.keywords and _has_one_element(source, call.func.value):
            text = "mark_layout_dynamic() on a tensor with one element and several dimensions."
            yield finding(CS404, call, text)


def _has_one_element(source: Source, node: ast.expr) -> bool:
    """`from_dlpack(torch.empty(1, 1))`, or names that stand for it."""
    node = _follow(source, node)
    if not (isinstance(node, ast.Call) and source.dotted(node.func) in FROM_DLPACK and node.args):
        return False
    made = _follow(source, node.args[0])
    if not isinstance(made, ast.Call) or not (source.dotted(made.func) or "").startswith("torch."):
        return False
    if (source.dotted(made.func) or "").rpartition(".")[2] not in FACTORIES:
        return False
    sizes = made.args[0].elts if made.args and isinstance(made.args[0], (ast.Tuple, ast.List)) else made.args
    return len(sizes) > 1 and all(isinstance(size, ast.Constant) and size.value == 1 for size in sizes)


def _follow(source: Source, node: ast.expr) -> ast.expr:
    """The expression a name stands for when it is assigned once in its scope."""
    if isinstance(node, ast.Name):
        home = source.scopes.scope_of(node).find(node.id)
        bound = home.bindings[node.id] if home is not None else []
        if len(bound) == 1 and isinstance(bound[0], ast.expr):
            return bound[0]
    return node


def _structs(source: Source) -> Iterator[Finding]:
    future = next(
        (n for n in source.tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__" and _annotations(n)),
        None,
    )
    for node in source.all(ast.ClassDef):
        if future is not None and any(source.dotted(d) == "cutlass.cute.struct" for d in node.decorator_list):
            yield finding(
                CS405, future, f"@cute.struct `{node.name}` (line {node.lineno}) needs real annotations, not strings."
            )
            return


def _annotations(node: ast.ImportFrom) -> bool:
    return any(alias.name == "annotations" for alias in node.names)


def _executed_sources(source: Source) -> Iterator[Finding]:
    if "linecache" in source.text:
        return
    texts = [n for n in source.all(ast.Constant) if isinstance(n.value, str) and KERNEL_SOURCE.search(n.value)]
    code = [text for text in texts if "def " in str(text.value)]
    for call in source.all(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == "exec" and code:
            yield finding(
                CS408, call, "A kernel made by exec has no source for the DSL to read: error[UNSUP_NO_SOURCE]."
            )

"""CS420–CS425: launching kernels."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from cutesmith.lint.call_graph import called_function, host_functions
from cutesmith.lint.rule import Rule
from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source, finding
from cutesmith.lint.symbols import SymbolTable
from cutesmith.verdicts import Finding

_KERNEL = """
        @cute.kernel
        def kernel(gX: cute.Tensor):
            i, _, _ = cute.arch.thread_idx()
            gX[i] = gX[i] + gX[i]
"""
_HOST = _KERNEL + "\n        @cute.jit\n        def host(mX: cute.Tensor):\n            kernel(mX)"
_LAUNCHED = _HOST + ".launch(grid=[1, 1, 1], block=[32, 1, 1])\n"
CS420 = Rule(
    "CS420",
    "error",
    "a kernel is called but not launched",
    "Calling a @cute.kernel only builds a launcher: in a @cute.jit function error[LAUNCH_NEVER_ISSUED], in "
    "plain Python nothing happens at all.",
    "Launch it: `kernel(…).launch(grid=[…], block=[…])` in a @cute.jit function.",
    _HOST + "\n",
    _LAUNCHED,
)

CS421 = Rule(
    "CS421",
    "error",
    "a kernel is launched from plain Python",
    "error[LAUNCH_OUTSIDE_JIT]: kernels can only be launched while a @cute.jit function is traced.",
    "Put the launch into a @cute.jit function, compile that with cute.compile, and call the compiled object.",
    _KERNEL + "\n        def kernel_fn(x):\n            kernel(x).launch(grid=[1, 1, 1], block=[32, 1, 1])\n"
    "            return x\n",
    _LAUNCHED,
)

CS422 = Rule(
    "CS422",
    "error",
    "launch takes no such keyword",
    "TypeError: LaunchConfig.__init__() got an unexpected keyword argument.",
    "Use grid, block, cluster, smem, stream, use_pdl, cooperative, max_number_threads, min_blocks_per_mp, …",
    _HOST + ".launch(grid=[1, 1, 1], threads=[32, 1, 1])\n",
    _LAUNCHED,
)

CS423 = Rule(
    "CS423",
    "error",
    "the launch asks for more than any GPU has",
    "The DSL compiles it, the driver refuses it: at most 1024 threads a block, 232448 bytes of dynamic shared "
    "memory (227 KiB), 16 blocks a cluster.",
    "Make the block, the shared memory or the cluster smaller.",
    _HOST + ".launch(grid=[1, 1, 1], block=[64, 32, 1])\n",
    _HOST + ".launch(grid=[1, 1, 1], block=[32, 32, 1])\n",
)

CS424 = Rule(
    "CS424",
    "warning",
    "min_blocks_per_mp asks the driver while compiling",
    "It calls cuDeviceGet while the host function is traced, so that nothing compiles on a machine without a "
    "driver (DynamicLibNotFoundError).",
    "Set `preferred_smem_carveout` in the launch as well, which avoids the query: the percentage of an SM's memory "
    "that is shared memory rather than L1, such as 50. Or leave min_blocks_per_mp out.",
    _HOST + ".launch(grid=[1, 1, 1], block=[32, 1, 1], min_blocks_per_mp=2)\n",
    _HOST + ".launch(\n"
    "                grid=[1, 1, 1], block=[32, 1, 1], min_blocks_per_mp=2, preferred_smem_carveout=50\n"
    "            )\n",
)

CS425 = Rule(
    "CS425",
    "note",
    "a launch without a block size",
    "`block` defaults to one thread, `grid` to one block: the kernel compiles and runs with a single thread.",
    "Pass both: `.launch(grid=[…], block=[…])`.",
    _HOST + ".launch(grid=[1, 1, 1])\n",
    _LAUNCHED,
)

LAUNCH_CONFIG = "c:cutlass.base_dsl.dsl.BaseDSL.LaunchConfig"
BESIDE_CONFIG = frozenset({"stream"})  # taken by launch() itself
LIMITS = {
    "block": (1024, "threads a block"),
    "cluster": (16, "blocks a cluster"),
    "smem": (232448, "bytes of shared memory"),
}


def check(source: Source, symbols: SymbolTable | None) -> Iterator[Finding]:
    """Findings of CS420–CS425 in one file."""
    reached = set(host_functions(source))
    for node in source.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _not_launched(source, node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "launch":
            kernel = _kernel(source, node.func.value)
            if kernel is not None:
                yield from _launch(source, symbols, node, kernel, reached)


def _kernel(source: Source, node: ast.expr) -> FunctionNode | None:
    """The @cute.kernel that a call builds a launcher of: by plain name, or as a method of `self`."""
    if not isinstance(node, ast.Call):
        return None
    function = called_function(source, node)
    if function is None and isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "self":
        function = _method(source, node, node.func.attr)
    return function if function is not None and source.traced.get(function) == "kernel" else None


def _method(source: Source, node: ast.AST, name: str) -> FunctionNode | None:
    owner = next((a for a in source.ancestors(node) if isinstance(a, ast.ClassDef)), None)
    found = [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name] if owner is not None else []
    return found[-1] if found else None


def _not_launched(source: Source, call: ast.Call) -> Iterator[Finding]:
    kernel = _kernel(source, call)
    if kernel is not None:
        where = "error[LAUNCH_NEVER_ISSUED]" if source.traced_of(call) else "nothing runs"
        yield finding(CS420, call, f"`{kernel.name}` is called but never launched: {where}.")


def _launch(
    source: Source, symbols: SymbolTable | None, call: ast.Call, kernel: FunctionNode, reached: set[FunctionNode]
) -> Iterator[Finding]:
    function = source.function_of(call)
    if source.traced_of(call) is None and (function is None or function in reached):
        yield finding(
            CS421, call, f"`{kernel.name}` is launched outside a @cute.jit function: error[LAUNCH_OUTSIDE_JIT]."
        )
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if None not in keywords:
        yield from _keywords(symbols, call, keywords)
    for name, value in keywords.items():
        yield from _over_limit(name, value)


def _keywords(symbols: SymbolTable | None, call: ast.Call, keywords: dict[str | None, ast.expr]) -> Iterator[Finding]:
    known = symbols.parameters(LAUNCH_CONFIG) if symbols is not None else None
    for name, value in keywords.items():
        if known is not None and name not in known and name not in BESIDE_CONFIG:
            yield finding(CS422, value, f"launch() takes no keyword {name}.", f"It takes {', '.join(known)}, stream.")
    if "block" not in keywords and len(call.args) == 0:
        yield finding(CS425, call, "This launch has no block size: the kernel runs with one thread a block.")
    least = keywords.get("min_blocks_per_mp")
    one = isinstance(least, ast.Constant) and least.value == 1  # with 1 the DSL 4.8.1 asks nothing
    if least is not None and not one and "preferred_smem_carveout" not in keywords:
        yield finding(CS424, least, "min_blocks_per_mp asks the CUDA driver while compiling.")


def _over_limit(name: str | None, value: ast.expr) -> Iterator[Finding]:
    limit, unit = LIMITS.get(name or "", (0, ""))
    sizes = _sizes(value)
    if limit and sizes and math.prod(sizes) > limit:
        yield finding(CS423, value, f"{math.prod(sizes)} {unit}: at most {limit} exist on any GPU.")


def _sizes(node: ast.expr) -> list[int]:
    """Literal sizes; empty when any is computed."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    values = [item.value if isinstance(item, ast.Constant) else None for item in items]
    return [value for value in values if type(value) is int] if all(type(value) is int for value in values) else []

"""CS501–CS505: the contract of a kernel file, and what verification rejects."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cutesmith.lint.call_graph import host_functions
from cutesmith.lint.rule import Rule
from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source, finding
from cutesmith.lint.staging import walk_function
from cutesmith.verdicts import Finding

_COMPILED = (
    "\n        def kernel_fn(x):\n            out = torch.empty_like(x)\n            compiled(x.dtype)(x, out)\n"
)
_REFERENCE = """
        def reference_fn(x):
            return torch.relu(x)

        def get_inputs():
            return [torch.randn(64, device="cuda")]
"""
CS501 = Rule(
    "CS501",
    "note",
    "a name of the contract is missing",
    "A kernel file defines kernel_fn, reference_fn and get_inputs; verify and benchmark need all three.",
    "Define kernel_fn(*inputs), reference_fn(*inputs) and get_inputs().",
    _COMPILED + "            return out\n",
    _COMPILED + "            return out\n" + _REFERENCE,
)

CS502 = Rule(
    "CS502",
    "warning",
    "kernel_fn computes with torch",
    "Only allocation and view operations of torch are allowed within kernel_fn; verify rejects the rest (rule W1).",
    "Do the computation in the CuTe DSL kernel; keep torch.empty/empty_like/zeros and views.",
    _REFERENCE + _COMPILED + "            return torch.relu(out)\n",
    _REFERENCE + _COMPILED + "            return out.view(-1)\n",
)

CS503 = Rule(
    "CS503",
    "warning",
    "kernel_fn falls back when the kernel fails",
    "A `try` around the kernel hides that it does not work; verify rejects it (rule W3).",
    "Let the error surface.",
    _REFERENCE
    + """
        def kernel_fn(x):
            out = torch.empty_like(x)
            try:
                compiled(x.dtype)(x, out)
            except Exception:
                return x.clone()
            return out
        """,
    _REFERENCE + _COMPILED + "            return out\n",
)

CS504 = Rule(
    "CS504",
    "warning",
    "kernel_fn uses reference_fn",
    "kernel_fn must compute by itself; reference_fn is absent from the process that runs it (rule W4).",
    "Write the computation as a kernel.",
    _REFERENCE + "\n        def kernel_fn(x):\n            return reference_fn(x)\n",
    _REFERENCE + _COMPILED + "            return out\n",
)

CS505 = Rule(
    "CS505",
    "warning",
    "code that the static checks cannot see through",
    "`exec`, `eval`, `compile`, `__import__`, ctypes and cffi are findings of their own (rule H7): what they "
    "run cannot be judged.",
    "Write the code out.",
    'def kernel_fn(x):\n    return eval("x + 1")',
    "def kernel_fn(x):\n    return x",
)

CONTRACT = ("kernel_fn", "reference_fn", "get_inputs")
ALLOCATION = frozenset(
    (
        "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor as_tensor from_dlpack"
    ).split()
)
VIEWS = frozenset(
    (
        "as_strided broadcast_to expand_as flatten movedim narrow permute ravel reshape select squeeze swapaxes t "
        "transpose unbind unflatten unsqueeze view view_as_real view_as_complex split chunk"
    ).split()
)
QUERIES = frozenset(
    ("broadcast_shapes device dtype finfo iinfo is_tensor numel result_type promote_types Size no_grad").split()
)
HARMLESS_MODULES = ("torch.cuda.", "torch.utils.", "torch.backends.", "torch.version.", "torch._C.", "torch.ops.")
COMPUTING_METHODS = frozenset(
    (
        "abs add amax amin argmax argmin clamp clip cumsum div exp gelu log log_softmax matmul max mean min mm bmm "
        "mul norm pow prod relu rsqrt sigmoid silu softmax sort sqrt std sub sum tanh topk var"
    ).split()
)
HIDDEN_CODE = frozenset({"exec", "eval", "compile", "__import__"})
FOREIGN_CODE = frozenset({"ctypes", "cffi"})


def check(source: Source, *, problem: bool = False) -> Iterator[Finding]:
    """Findings of CS501–CS505 in one file, whose reference and inputs a `problem` file may have."""
    yield from _missing_names(source, CONTRACT[:1] if problem else CONTRACT)
    for function in host_functions(source):
        if function.name in CONTRACT[1:]:
            continue  # reached by mistake: CS504 says so at the call
        yield from _torch_compute(source, function)
        for node in walk_function(function):
            if isinstance(node, ast.Name) and node.id == "reference_fn":
                yield finding(CS504, node, f"`{function.name}` uses reference_fn.")
        yield from _fallbacks(function)
    yield from _hidden_code(source)


def _missing_names(source: Source, wanted: Sequence[str]) -> Iterator[Finding]:
    scope = source.scopes.inner_scope(source.tree)
    missing = [name for name in wanted if name not in scope.bindings]
    if missing and "Model" not in scope.bindings:
        yield finding(CS501, 1, f"This file does not define {', '.join(missing)}.")


def _torch_compute(source: Source, function: FunctionNode) -> Iterator[Finding]:
    tensors = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    tensors |= set(_made_by_torch(source, function))
    for node in walk_function(function):
        if isinstance(node, ast.Call):
            name = _computing_call(source, node, tensors)
            if name:
                yield finding(CS502, node, f"`{name}` computes with torch in `{function.name}`.")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield finding(CS502, node, f"`@` multiplies matrices with torch in `{function.name}`.")


def _made_by_torch(source: Source, function: FunctionNode) -> Iterator[str]:
    """Names that the function assigns from a call of torch: its outputs and scratch tensors."""
    for node in walk_function(function):
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(call, ast.Call):
            made = (source.dotted(call.func) or "").startswith("torch.")
            yield from (target.id for target in node.targets if made and isinstance(target, ast.Name))


def _computing_call(source: Source, node: ast.Call, tensors: set[str]) -> str:
    dotted = source.dotted(node.func) or ""
    if dotted.startswith("torch.") and not dotted.startswith(HARMLESS_MODULES):
        return "" if dotted.rpartition(".")[2] in ALLOCATION | VIEWS | QUERIES else dotted
    method = isinstance(node.func, ast.Attribute) and node.func.attr.removesuffix("_") in COMPUTING_METHODS
    owner = getattr(getattr(node.func, "value", None), "id", "") if method else ""
    return ast.unparse(node.func) if owner in tensors else ""


def _fallbacks(function: FunctionNode) -> Iterator[Finding]:
    for node in walk_function(function):
        if isinstance(node, ast.Try) and node.handlers and not _only_cache_misses(node):
            raises = all(isinstance(handler.body[-1], ast.Raise) for handler in node.handlers)
            if not raises:
                yield finding(CS503, node, f"`{function.name}` goes on when what it tries fails.")


def _only_cache_misses(node: ast.Try) -> bool:
    """`except KeyError` (a look-up in a cache) and nothing else."""
    return all(isinstance(h.type, ast.Name) and h.type.id in ("KeyError", "AttributeError") for h in node.handlers)


def _hidden_code(source: Source) -> Iterator[Finding]:
    scope = source.scopes.inner_scope(source.tree)
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HIDDEN_CODE:
            if node.func.id not in scope.bindings:
                yield finding(CS505, node, f"`{node.func.id}` runs code that cannot be judged here.")
        elif (
            isinstance(node, ast.Import)
            and any(a.name.split(".")[0] in FOREIGN_CODE for a in node.names)
            or isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] in FOREIGN_CODE
        ):
            yield finding(CS505, node, "Foreign functions run code that cannot be judged here.")

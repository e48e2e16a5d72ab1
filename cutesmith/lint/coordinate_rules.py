"""CS438: the element type of tensors that hold coordinates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cutesmith.lint.call_graph import called_function
from cutesmith.lint.parts_of_tensors import base, parts_of
from cutesmith.lint.rule import Rule
from cutesmith.lint.scopes import FunctionNode
from cutesmith.lint.source import Source, finding
from cutesmith.lint.staging import walk_function
from cutesmith.verdicts import Finding

CS438 = Rule(
    "CS438",
    "error",
    "the element type of a tensor of coordinates",
    "The second result of `make_tiled_tma_atom`, and an identity tensor, hold coordinates, not numbers. Their "
    "`element_type` as a dtype raises TypeError: value_ty must be a type of Numeric, but got … IntTuple, or: "
    "issubclass() arg 1 must be a class.",
    "Take the type of the tensor in memory that the atom was made for, and hand it to the kernel.",
    """
    from cutlass.cute.nvgpu import cpasync

    @cute.kernel
    def kernel(tma: cute.CopyAtom, tX: cute.Tensor):
        rX = cute.make_rmem_tensor((8,), tX.element_type)

    @cute.jit
    def host(mX: cute.Tensor):
        load, tile = cpasync.CopyBulkTensorTileG2SOp(), cute.make_layout(64)
        tma, tX = cpasync.make_tiled_tma_atom(load, mX, tile, (64,))
        kernel(tma, tX).launch(grid=(1, 1, 1), block=(32, 1, 1))
    """,
    """
    from cutlass.cute.nvgpu import cpasync

    @cute.kernel
    def kernel(tma: cute.CopyAtom, tX: cute.Tensor, dtype: cutlass.Constexpr):
        rX = cute.make_rmem_tensor((8,), dtype)

    @cute.jit
    def host(mX: cute.Tensor):
        load, tile = cpasync.CopyBulkTensorTileG2SOp(), cute.make_layout(64)
        tma, tX = cpasync.make_tiled_tma_atom(load, mX, tile, (64,))
        kernel(tma, tX, mX.element_type).launch(grid=(1, 1, 1), block=(32, 1, 1))
    """,
)

TMA_ATOM = re.compile(r"cutlass\.cute\.nvgpu\.(cpasync\.)?make_(tiled|im2col)_tma_atom(_[ABC])?$")
IDENTITY = "cutlass.cute.make_identity_tensor"


def check(source: Source) -> Iterator[Finding]:
    """Findings of CS438: `.element_type` of coordinates, also in functions that they are handed to."""
    known = {function: _made(source, function) for function in source.functions}
    waiting = [function for function, names in known.items() if names]
    while waiting:
        function = waiting.pop()
        for called, name in _handed_on(source, function, known[function]):
            if name not in known[called]:
                known[called] = _made(source, called, known[called] | {name})
                waiting.append(called)
    for function, names in known.items():
        for node in walk_function(function) if names else ():
            if isinstance(node, ast.Attribute) and node.attr == "element_type" and base(node.value) in names:
                yield finding(CS438, node, f"`{ast.unparse(node.value)}` holds coordinates: it has no dtype.")


def _made(source: Source, function: FunctionNode, known: set[str] | None = None) -> set[str]:
    """The names of a function that stand for coordinates and nothing else; `known` are some of them."""
    nodes = list(walk_function(function))
    first = {name for node in nodes if isinstance(node, ast.Assign) for name in _of_atom(source, node)}
    found = parts_of(nodes, lambda value: _is_identity(source, value), first | (known or set()))
    bindings = source.scopes.inner_scope(function).bindings
    return {name for name in found if len(bindings.get(name, ())) == 1}


def _of_atom(source: Source, node: ast.Assign) -> Iterator[str]:
    """The second name of `atom, tensor = make_tiled_tma_atom(…)`."""
    target, value = node.targets[0], node.value
    if not (isinstance(value, ast.Call) and TMA_ATOM.match(source.dotted(value.func) or "")):
        return
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[1], ast.Name):
        yield target.elts[1].id


def _is_identity(source: Source, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and source.dotted(value.func) == IDENTITY


def _handed_on(source: Source, function: FunctionNode, names: set[str]) -> Iterator[tuple[FunctionNode, str]]:
    """Functions of the file that are called with coordinates, and the parameters that take them."""
    for call in walk_function(function):
        called = _called(source, call) if isinstance(call, ast.Call) else None
        if called is None or not isinstance(call, ast.Call):
            continue
        parameters = [argument.arg for argument in (*called.args.posonlyargs, *called.args.args)]
        parameters = parameters[isinstance(call.func, ast.Attribute) :]  # without self
        given = [*zip(parameters, call.args), *((k.arg or "", k.value) for k in call.keywords)]
        yield from ((called, name) for name, value in given if name and base(value) in names)


def _called(source: Source, call: ast.Call) -> FunctionNode | None:
    """The function or the method of the same class that a call names."""
    if not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)):
        return called_function(source, call)
    home = next((a for a in source.ancestors(call) if isinstance(a, ast.ClassDef)), None)
    if home is None or call.func.value.id != "self":
        return None
    return next((n for n in home.body if isinstance(n, ast.FunctionDef) and n.name == call.func.attr), None)

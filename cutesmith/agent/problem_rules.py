"""What a problem file that a model wrote must be, beside what its audit tries: plain PyTorch, several input sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cutesmith.contract import PROBLEM_NAMES, defined_names, module_scope, parse
from cutesmith.errors import ContractError

IMPORTS = frozenset({"__future__", "torch", "math", "typing", "itertools", "functools"})
FORBIDDEN = {
    "torch.compile": "the reference is eager PyTorch",
    "torch.jit": "the reference is eager PyTorch",
    "torch.ops": "the reference uses PyTorch's public functions",
    "torch.library": "the reference uses PyTorch's public functions",
    "torch.utils.cpp_extension": "the reference holds no kernel of its own",
    "torch.manual_seed": "inputs are drawn anew, without a seed",
    "torch.load": "inputs are drawn, not read",
}
_WRITTEN = ("get_inputs", "get_input_sets")
_NAME = "problem.py"


def complaints_about_problem(text: str) -> list[str]:
    """What is wrong with a whole problem file, one sentence each; empty when nothing is."""
    tree, wrong = _parsed(text)
    if tree is None:
        return [wrong]
    names = _names(tree)
    missing = [name for name in ("reference_fn", *_WRITTEN) if name not in names]
    kernels = ["kernel_fn does not belong into a problem file: only the reference does"] if "kernel_fn" in names else []
    lacks = [f"the file defines no {' and no '.join(missing)} at top level"] if missing else []
    return [*lacks, *kernels, *_forbidden(tree)]


def complaints_about_inputs(text: str, source: str) -> list[str]:
    """What is wrong with the definitions that are appended to `source`: they may replace nothing of it."""
    tree, wrong = _parsed(text)
    if tree is None:
        return [wrong]
    names = _names(tree)
    missing = [name for name in _WRITTEN if name not in names]
    theirs = _names(parse(source, _NAME))
    taken = sorted(names & theirs - set(_imports(tree)) - {"get_input_sets"})
    reserved = sorted(names & set(PROBLEM_NAMES) - {*_WRITTEN, "TOLERANCE"})
    complaints = [f"the text defines no {' and no '.join(missing)}"] if missing else []
    complaints += [f"{name} belongs to the file already: leave it out" for name in dict.fromkeys([*taken, *reserved])]
    loose = [s for s in tree.body if not isinstance(s, (ast.FunctionDef, ast.Import, ast.ImportFrom, ast.Assign))]
    complaints += [f"line {s.lineno}: only functions, imports and constants may be added" for s in loose]
    return [*complaints, *_forbidden(tree)]


def _parsed(text: str) -> tuple[ast.Module | None, str]:
    try:
        return parse(text, _NAME), ""
    except ContractError as error:
        return None, str(error)


def _names(tree: ast.Module) -> set[str]:
    return {name for statement in module_scope(tree.body) for name in defined_names(statement)}


def _imports(tree: ast.Module) -> Iterator[str]:
    for statement in module_scope(tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from defined_names(statement)


def _forbidden(tree: ast.Module) -> Iterator[str]:
    """Imports and functions that have no place in a reference."""
    for node in ast.walk(tree):
        for module in _imported(node):
            root = module.partition(".")[0]
            if root not in IMPORTS:
                yield f"line {node.lineno}: import of {root}: a problem needs torch alone"  # type: ignore[attr-defined]
            elif why := FORBIDDEN.get(module):
                yield f"line {node.lineno}: {module}: {why}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) and (why := FORBIDDEN.get(ast.unparse(node))):
            yield f"line {node.lineno}: {ast.unparse(node)}: {why}"


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)

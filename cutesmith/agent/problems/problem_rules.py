"""What a problem file that a model wrote must be, beside what its audit tries: plain PyTorch, several input sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from cutesmith.errors import ContractError
from cutesmith.problems.contract import PROBLEM_NAMES, defined_names, module_scope, parse

IMPORTS = frozenset({"__future__", "torch", "math", "typing", "itertools", "functools"})
FORBIDDEN = {
    "torch.compile": "the reference is eager PyTorch",
    "torch.jit": "the reference is eager PyTorch",
    "torch.ops": "the reference uses PyTorch's public functions",
    "torch.library": "the reference uses PyTorch's public functions",
    "torch.utils.cpp_extension": "the reference holds no kernel of its own",
    "torch.manual_seed": "inputs are drawn afresh, without a seed",
    "torch.load": "inputs are drawn, not read",
}
_REFLECTION = frozenset({"globals", "vars", "setattr", "delattr", "exec", "eval", "__import__", "__builtins__"})
_SAME_ANYWHERE = frozenset({"torch", "math", "itertools", "functools"})
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
    lacks = [f"the text defines no {' and no '.join(missing)}"] if missing else []
    imports = [node for node in module_scope(tree.body) if isinstance(node, ast.Import)]
    plain = {alias.name for node in imports for alias in node.names if alias.asname is None}  # the same in every file
    theirs = _names(parse(source, _NAME)) - (_SAME_ANYWHERE & plain) - {"get_input_sets"}
    reserved = set(PROBLEM_NAMES) - {*_WRITTEN, "TOLERANCE"}
    taken = [f"{name} belongs to the file already: leave it out" for name in sorted(names & (theirs | reserved))]
    loose = [statement for statement in tree.body if not _only_defines(statement)]
    extra = [f"line {s.lineno}: only functions, imports and constants may be added" for s in loose]
    return [*lacks, *taken, *extra, *_forbidden(tree)]


def _only_defines(statement: ast.stmt) -> bool:
    """An import, a plain function, or a name for a literal: running it calls and changes nothing."""
    if isinstance(statement, ast.Assign):
        plain = all(isinstance(target, ast.Name) for target in statement.targets)
        return plain and not any(isinstance(node, ast.Call) for node in ast.walk(statement.value))
    if isinstance(statement, ast.FunctionDef):
        return not statement.decorator_list
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _parsed(text: str) -> tuple[ast.Module | None, str]:
    try:
        return parse(text, _NAME), ""
    except ContractError as error:
        return None, str(error)


def _names(tree: ast.Module) -> set[str]:
    return {name for statement in module_scope(tree.body) for name in defined_names(statement)}


def _forbidden(tree: ast.Module) -> Iterator[str]:
    """Imports, functions and assignments that have no place in a reference."""
    for node in ast.walk(tree):
        line = f"line {getattr(node, 'lineno', 0)}"
        for module in _imported(node):
            if (root := module.partition(".")[0]) not in IMPORTS:
                yield f"{line}: import of {root}: a problem needs torch alone"
            elif why := next((why for name, why in FORBIDDEN.items() if f"{module}.".startswith(f"{name}.")), ""):
                yield f"{line}: {module}: {why}"
        if isinstance(node, ast.Name) and node.id in _REFLECTION:
            yield f"{line}: {node.id}: a problem changes nothing but its own variables"
        elif isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                yield f"{line}: {ast.unparse(node)} is assigned: a problem changes nothing but its own variables"
            elif ast.unparse(node) in FORBIDDEN:
                yield f"{line}: {ast.unparse(node)}: {FORBIDDEN[ast.unparse(node)]}"


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)

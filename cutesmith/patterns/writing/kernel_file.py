"""The standalone `kernel.py`: a header, the kernel section that a plan rendered, then the problem's own source.

The file needs torch and the DSL, nothing of ours. The problem comes last and verbatim, so that a reader can compare it
with the file it came from; what would make the two halves disturb each other is settled here: `__future__` imports move
to the top, and names that both define are renamed in the kernel section, since the problem's definitions run later.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cutesmith import __version__
from cutesmith.errors import ContractError
from cutesmith.patterns.writing.inlining import inlined
from cutesmith.patterns.writing.naming import KERNEL_NAME
from cutesmith.patterns.writing.pruning import prune
from cutesmith.patterns.writing.wrapping import wrapped
from cutesmith.problems.contract import defined_names, module_scope, parse

PROBLEM_MARK = "# ---- The problem, as it was given: what to compute, and on which inputs."
HEADER = '''\
"""{problem} as a CuTe DSL kernel.

{facts}
"""
'''


def assemble_kernel(
    kernel_section: str,
    problem_source: str,
    *,
    problem: str,
    pattern: str,
    configuration: Mapping[str, Any],
    arch: str,
    reasons: str = "",
) -> str:
    """The text of a whole kernel file; `reasons` are sentences for its head: why this configuration, what is predicted.

    `problem_source` must define `reference_fn` and `get_inputs` (a KernelBench file: with its adapter, as
    `load_file(path).source` gives it). Raises ContractError when it defines `kernel_fn` itself or is not Python.
    """
    problem_tree = parse(problem_source, problem)
    _refuse_kernel(problem_tree, problem)
    futures, body = split_futures(problem_source, problem_tree)
    section = wrapped(rename_clashes(inlined(prune(kernel_section)), problem_tree))
    if "cute.struct" in section:  # it reads annotations as objects, not as text
        futures = [name for name in futures if name != "annotations"]
    parts = [_header(problem, pattern, configuration, arch, reasons)]
    if futures:
        parts.append(f"from __future__ import {', '.join(futures)}\n")
    parts.append(section.strip("\n") + "\n")
    parts.append(f"\n{PROBLEM_MARK}\n")
    parts.append(body.strip("\n") + "\n")
    text = "\n".join(parts)
    parse(text, "kernel.py")
    return text


def _header(problem: str, pattern: str, configuration: Mapping[str, Any], arch: str, reasons: str) -> str:
    chosen = {key: value for key, value in configuration.items() if value is not False}  # not what is switched off
    settings = ", ".join(f"{key}={json.dumps(value)}" for key, value in chosen.items()) or "none"
    facts = (
        f"Written by cutesmith {__version__} for {arch}: pattern {pattern}, configuration {settings}.",
        *([reasons] if reasons else []),
        "Standalone: needs torch and nvidia-cutlass-dsl only; kernel_fn computes what reference_fn below does.",
    )
    wrapped = "\n".join(textwrap.fill(fact, 118, break_long_words=False) for fact in facts)
    return HEADER.format(problem=_docstring_text(problem), facts=_docstring_text(wrapped))


def _docstring_text(text: str) -> str:
    """Text that cannot end the docstring it stands in."""
    return text.replace("\\", "/").replace('"""', "'''").rstrip('"')


def _refuse_kernel(tree: ast.Module, problem: str) -> None:
    for statement in module_scope(tree.body):
        if KERNEL_NAME in defined_names(statement):
            raise ContractError(
                f"{problem}:{statement.lineno}: the problem already defines {KERNEL_NAME}",
                hint=f"Remove {KERNEL_NAME}, or give a file with reference_fn and get_inputs only.",
            )


def split_futures(source: str, tree: ast.Module) -> tuple[list[str], str]:
    """The names that the source imports from `__future__`, and the source without those lines."""
    imports = [s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    lines = source.splitlines()
    for statement in imports:
        for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            lines[number - 1] = ""
    names = dict.fromkeys(alias.name for statement in imports for alias in statement.names)
    return list(names), "\n".join(lines) if imports else source


def rename_clashes(section: str, problem_tree: ast.Module) -> str:
    """The kernel section with every module-level name that the problem also binds, to something else, renamed."""
    tree = parse(section, "kernel section")
    ours, theirs = _bindings(tree), _bindings(problem_tree)
    clashes = [name for name in ours if name in theirs and (ours[name] != theirs[name] or ours[name] is None)]
    taken = {*ours, *theirs, *_identifiers(tree), *_identifiers(problem_tree)}
    renames = {name: _free_name(name, taken) for name in clashes if name != KERNEL_NAME}
    return _replace(section, tree, renames) if renames else section


def _bindings(tree: ast.Module) -> dict[str, str | None]:
    """Module-level names; an import maps to what it imports, so that equal imports do not clash, others to None."""
    found: dict[str, str | None] = {}
    for statement in module_scope(tree.body):
        for name in defined_names(statement):
            meaning = _imported(statement, name)
            found[name] = meaning if found.get(name, meaning) == meaning else None
    return found


def _imported(statement: ast.stmt, name: str) -> str | None:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        prefix = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
        for alias in statement.names:
            if alias.asname == name:
                return prefix + alias.name
            if alias.asname is None and alias.name.partition(".")[0] == name:
                return prefix + name
    return None


def _identifiers(tree: ast.Module) -> Iterator[str]:
    return (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _free_name(name: str, taken: Iterable[str]) -> str:
    taken, number = set(taken), 0
    candidate = f"kernel_{name}" if not name.startswith("_") else f"_kernel{name}"
    while candidate in taken:
        number += 1
        candidate = f"kernel{number}_{name}"
    return candidate


def renamed(section: str, renames: Mapping[str, str]) -> str:
    """The section with its module-level names replaced, wherever they are bound or read as such."""
    return _replace(section, parse(section, "kernel section"), renames)


def _replace(section: str, tree: ast.Module, renames: Mapping[str, str]) -> str:
    """Rename at the places that the AST gives, from the last to the first; columns are in UTF-8 bytes."""
    lines = [line.encode() for line in section.split("\n")]
    for line, column, old, new in sorted(set(_places(tree, lines, renames)), reverse=True):
        text = lines[line - 1]
        assert text[column : column + len(old)] == old.encode()
        lines[line - 1] = text[:column] + new.encode() + text[column + len(old) :]
    return "\n".join(line.decode() for line in lines)


Place = tuple[int, int, str, str]
"""Line, column, the name that stands there and the one that is to."""


def _places(node: ast.AST, lines: list[bytes], renames: Mapping[str, str]) -> Iterator[Place]:
    """Where the module's names stand below a node; a function's own names and a class's fields are others."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        yield from _function_places(node, lines, renames)
        return
    if isinstance(node, ast.ClassDef):
        yield from _class_places(node, lines, renames)
        return
    if isinstance(node, ast.Name) and node.id in renames:
        yield node.lineno, node.col_offset, node.id, renames[node.id]
    elif isinstance(node, ast.Global):
        yield from _global_places(node, lines, renames)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from _import_places(node, renames)
    for child in ast.iter_child_nodes(node):
        yield from _places(child, lines, renames)


def _function_places(
    node: ast.FunctionDef | ast.Lambda, lines: list[bytes], renames: Mapping[str, str]
) -> Iterator[Place]:
    parameters = [each for each in ast.walk(node.args) if isinstance(each, ast.arg)]
    outside: list[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    outside += [each.annotation for each in parameters if each.annotation]
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    if isinstance(node, ast.FunctionDef):
        yield from _name_place(node, lines, renames)
        outside += [*node.decorator_list, *filter(None, [node.returns])]
    own = {each.arg for each in parameters} | {name for each in body for name in _stored(each)}
    own -= {name for each in body for inner in ast.walk(each) if isinstance(inner, ast.Global) for name in inner.names}
    inside = {old: new for old, new in renames.items() if old not in own}
    for each in outside:
        yield from _places(each, lines, renames)
    for each in body:
        yield from _places(each, lines, inside)


def _class_places(node: ast.ClassDef, lines: list[bytes], renames: Mapping[str, str]) -> Iterator[Place]:
    """Of methods too, which do not see the fields."""
    yield from _name_place(node, lines, renames)
    fields = {name for each in node.body for name in _stored(each)}
    inside = {old: new for old, new in renames.items() if old not in fields}
    for each in (*node.decorator_list, *node.bases, *node.keywords):
        yield from _places(each, lines, renames)
    for each in node.body:
        yield from _places(each, lines, renames if isinstance(each, ast.FunctionDef) else inside)


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds in its own scope; those of a comprehension are renamed as they are read."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for child in ast.iter_child_nodes(node):
            yield from _stored(child)


def _name_place(
    node: ast.FunctionDef | ast.ClassDef, lines: list[bytes], renames: Mapping[str, str]
) -> Iterator[Place]:
    if node.name in renames:
        column = _name_column(lines[node.lineno - 1], node.name, node.col_offset)
        yield node.lineno, column, node.name, renames[node.name]


def _name_column(line: bytes, name: str, start: int) -> int:
    found = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b").search(line, start)
    assert found is not None
    return found.start()


def _global_places(node: ast.Global, lines: list[bytes], renames: Mapping[str, str]) -> Iterator[Place]:
    for name in node.names:
        if name in renames:
            column = _name_column(lines[node.lineno - 1], name, node.col_offset)
            yield node.lineno, column, name, renames[name]


def _import_places(node: ast.Import | ast.ImportFrom, renames: Mapping[str, str]) -> Iterator[Place]:
    """`import a` and `import a as c` become `import a as b`; `import a.b` binds a and is left alone."""
    for alias in node.names:
        bound = alias.asname or alias.name
        if bound not in renames:
            continue
        whole = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
        yield alias.lineno, alias.col_offset, whole, f"{alias.name} as {renames[bound]}"

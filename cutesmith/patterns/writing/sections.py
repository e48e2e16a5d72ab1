"""Kernel sections in one file: equal definitions stand there once, others get another name."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from cutesmith.patterns.writing.kernel_file import KERNEL_NAME, renamed
from cutesmith.problems.contract import defined_names, module_scope, parse


def join_sections(sections: Mapping[str, str]) -> str:
    """All sections in their order; the `kernel_fn` of each becomes the function that it is filed under.

    A statement of a later section is dropped when an earlier one has the same and it reads nothing that differs.
    """
    (function, section), *others = sections.items()
    joined = renamed(section.strip("\n"), {KERNEL_NAME: function})
    for function, section in others:
        joined = _with_section(joined, section, function)
    return f"{joined}\n"


def _with_section(first: str, second: str, function: str) -> str:
    own = parse(second, "second section")
    theirs = {ast.unparse(statement) for statement in parse(first, "first section").body}
    statements = [(statement, set(defined_names(statement))) for statement in module_scope(own.body)]
    differing = _differing(statements, theirs)
    renames = {name: _own_name(name, function) for name in differing} | {KERNEL_NAME: function}
    kept = [s for s, names in statements if names & differing or not names and ast.unparse(s) not in theirs]
    lines = second.split("\n")
    rest = "\n\n\n".join("\n".join(lines[_first_line(s) - 1 : s.end_lineno]) for s in kept)
    return f"{first}\n\n\n{renamed(rest, renames)}"


def _differing(statements: list[tuple[ast.stmt, set[str]]], theirs: set[str]) -> set[str]:
    """The names whose statements the other section lacks, hold state of their own, or read such names."""
    differing: set[str] = set()
    for statement, names in statements:
        if _is_state(statement) or ast.unparse(statement) not in theirs:
            differing |= names
    while True:
        reading = [names for s, names in statements if not names <= differing and _read_names(s) & differing]
        if not reading:
            return differing
        differing = differing.union(*reading)


def _is_state(statement: ast.stmt) -> bool:
    """Whether it makes an empty dict, to be filled when kernels are launched."""
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict) and not statement.value.keys


def _read_names(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _first_line(statement: ast.stmt) -> int:
    """The line of the first decorator, where there is one."""
    if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return statement.lineno
    return min([statement.lineno, *(decorator.lineno for decorator in statement.decorator_list)])


def _own_name(name: str, prefix: str) -> str:
    if name.startswith("_"):
        return f"_{prefix}{name}"
    return f"{prefix.upper()}_{name}" if name.isupper() else f"{prefix}_{name}"

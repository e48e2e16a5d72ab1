"""Kernel sections in one file: equal definitions stand there once, others get another name."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set

from cutesmith.patterns.writing.kernel_file import KERNEL_NAME, renamed
from cutesmith.problems.contract import defined_names, module_scope, parse


def join_sections(sections: Mapping[str, str]) -> str:
    """All sections in their order; the `kernel_fn` of each becomes the function that it is filed under.

    A statement of a later section is dropped when an earlier one has the same and it reads nothing that differs.
    """
    (function, section), *others = sections.items()
    joined = [renamed(section.strip("\n"), {KERNEL_NAME: function})]
    known = _statements(joined[0])
    for function, section in others:
        joined.append(_own_part(section, known, function))
        known |= _statements(joined[-1])
    return "\n\n\n".join(joined) + "\n"


def _statements(section: str) -> set[str]:
    return {ast.unparse(statement) for statement in parse(section, "section").body}


def _own_part(section: str, known: Set[str], function: str) -> str:
    """What a section adds to a file that has the statements `known`."""
    body = module_scope(parse(section, "section").body)
    statements = [(statement, set(defined_names(statement)), ast.unparse(statement)) for statement in body]
    differing = _differing(statements, known)
    renames = {name: _own_name(name, function) for name in differing} | {KERNEL_NAME: function}
    kept = [s for s, names, text in statements if names & differing or not names and text not in known]
    lines = section.split("\n")
    return renamed("\n\n\n".join("\n".join(lines[_first_line(s) - 1 : s.end_lineno]) for s in kept), renames)


def _differing(statements: list[tuple[ast.stmt, set[str], str]], known: Set[str]) -> set[str]:
    """The names whose statements the file lacks, hold state of their own, or read such names."""
    differing: set[str] = set()
    for statement, names, text in statements:
        if _is_state(statement) or text not in known:
            differing |= names
    read = [(names, _read_names(statement)) for statement, names, _ in statements]
    while True:
        reading = [names for names, theirs in read if not names <= differing and theirs & differing]
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

"""Sections whose `kernel_fn` says what it would launch, in place of launching it: a `Tape` repeats it then.

The tape is kept for inputs of the same kind, so that such a function keeps no compiled kernels by its own inputs.
"""

from __future__ import annotations

import ast
import re

from cutesmith.patterns.writing.naming import KERNEL_NAME
from cutesmith.problems.contract import parse

_KEPT = re.compile(r"^(\s+)(\w+) = \w+\[key\] = ")


def noting(section: str) -> str:
    """The section whose `kernel_fn` takes `note` first, and calls it with what it would launch and pass to that."""
    lines, tree = section.split("\n"), parse(section, "section")
    (function,) = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == KERNEL_NAME]
    lines[function.lineno - 1] = lines[function.lineno - 1].replace(f"{KERNEL_NAME}(", f"{KERNEL_NAME}(note, ", 1)
    keeps_key = sum(isinstance(node, ast.Name) and node.id == "key" for node in ast.walk(function)) > 3
    dropped = set[int]()
    for statement in function.body:
        first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno)
        if _calls(statement, "launch"):
            lines[first] = lines[first].replace("launch(", "note(launch, ", 1)
        elif keeps_key:
            continue
        elif _binds(statement, "key") or _is_look_up(statement):
            dropped.update(range(first, last))
        elif isinstance(statement, ast.If) and (kept := _KEPT.match(lines[statement.body[-1].lineno - 1])):
            dropped.add(first)
            lines[first:last] = [line[4:] for line in lines[first:last]]
            at = statement.body[-1].lineno - 1
            lines[at] = _KEPT.sub(rf"    {kept[2]} = ", f"    {lines[at]}")
    return "\n".join(line for number, line in enumerate(lines) if number not in dropped)


def _calls(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and _is(statement.value.func, name)


def _binds(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Assign) and _is(statement.targets[0], name)


def _is_look_up(statement: ast.stmt) -> bool:
    """Whether it looks up a compiled kernel: `launch = LAUNCHERS.get(key)`."""
    call = statement.value if isinstance(statement, ast.Assign) else None
    is_get = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "get"
    return is_get and [ast.unparse(each) for each in call.args] == ["key"]  # type: ignore[union-attr]


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name

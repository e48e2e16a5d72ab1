"""A problem file with the whole numbers at module scope made smaller, for where its full sizes take too long.

Even numbers are halved until they are at most 16. Where a file does not take that, large ones are divided by 32; then
the batch is made 2; then numbers that `get_inputs` alone uses are halved to 64; then none is changed. Which of these a
file takes is for the caller to try, in this order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

WHOLE = "whole"
"""The way that changes nothing."""


def smaller_sources(source: str) -> Iterator[tuple[str, str]]:
    """(way, text) of the file with smaller numbers, the smallest first, then as it is. Raises SyntaxError."""
    tree = ast.parse(source)
    shared = _names_used(tree, lambda name: name != "get_inputs")
    for way, (smaller, is_meant) in _WAYS.items():
        changed = ast.parse(source)
        for statement in changed.body:
            if isinstance(statement, ast.Assign) and is_meant(_names_of(statement), shared):
                _Smaller(smaller).visit(statement.value)
        yield way, f"{ast.unparse(changed)}\n"
    yield WHOLE, source


class _Smaller(ast.NodeTransformer):
    """Changes whole numbers, in place."""

    def __init__(self, smaller: Callable[[int], int]) -> None:
        self.smaller = smaller

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """One number; True is not one."""
        if type(node.value) is int:
            node.value = self.smaller(node.value)
        return node


def _halved(value: int, most: int) -> int:
    """Halved while it is larger than `most`, and even."""
    while value > most and value % 2 == 0:
        value //= 2
    return value


_WAYS: dict[str, tuple[Callable[[int], int], Callable[[set[str], set[str]], bool]]] = {
    "all to 16": (lambda value: _halved(value, 16), lambda names, shared: True),
    "large ones by 32": (lambda value: value // 32 if value % 512 == 0 else value, lambda names, shared: True),
    "batch to 2": (lambda value: _halved(value, 2), lambda names, shared: names <= {"batch_size", "batch", "N"}),
    "those of get_inputs to 64": (lambda value: _halved(value, 64), lambda names, shared: not names & shared),
}
"""How numbers change, and in which assignments, by their names and those that other parts than get_inputs use."""


def _names_of(statement: ast.Assign) -> set[str]:
    """The names that an assignment binds."""
    return {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _names_used(tree: ast.Module, accepted: Callable[[str], bool]) -> set[str]:
    """The names that the functions and classes of these names read."""
    parts = [part for part in tree.body if isinstance(part, (ast.FunctionDef, ast.ClassDef)) and accepted(part.name)]
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}

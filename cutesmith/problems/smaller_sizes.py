"""A problem file with the whole numbers at module scope made smaller, for where its full sizes take too long.

Even numbers are halved until they are at most 16, the batch until it is 2, the sides of an image until they are at
most 8, and a number of groups until it is 4: as many groups as channels would have one channel each. Where a file
does not take that, those are 16 as well; then large numbers are divided by 32; then the batch alone is made 2; then
numbers that `get_inputs` alone uses are halved to 64; then all numbers are, also those inside functions; then none is
changed. Which of these a file takes is for the caller to try, in this order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Change = Callable[[int], int]
WHOLE = "whole"
"""The way that changes nothing."""
EVERYWHERE = "all to 64, also in functions"


def smaller_sources(source: str) -> Iterator[tuple[str, str]]:
    """(way, text) of the file with smaller numbers, the smallest first, then as it is. Raises SyntaxError."""
    tree = ast.parse(source)
    shared = _names_used(tree, lambda name: name != "get_inputs")
    for way, rule in _WAYS.items():
        changed = ast.parse(source)
        for statement in changed.body:
            if isinstance(statement, ast.Assign) and (smaller := rule(_names_of(statement), shared)) is not None:
                _Smaller(smaller).visit(statement.value)
        yield way, f"{ast.unparse(changed)}\n"
    yield EVERYWHERE, f"{ast.unparse(_Smaller(_halved_to(64)).visit(tree))}\n"
    yield WHOLE, source


class _Smaller(ast.NodeTransformer):
    """Changes whole numbers, in place."""

    def __init__(self, smaller: Change) -> None:
        self.smaller = smaller

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """One number; True is not one."""
        if type(node.value) is int:
            node.value = self.smaller(node.value)
        return node


def _halved_to(most: int) -> Change:
    """What halves a number while it is larger than `most`, and even."""

    def halved(value: int) -> int:
        while value > most and value % 2 == 0:
            value //= 2
        return value

    return halved


def _by_32(value: int) -> int:
    return value // 32 if value % 512 == 0 else value


_BATCH = frozenset({"batch_size", "batch", "N"})
_IMAGE = frozenset({"depth", "height", "width", "D", "H", "W", "image_size", "image_height", "image_width"})
_GROUPS = frozenset({"groups", "num_groups", "n_groups", "group_count"})
_WAYS: dict[str, Callable[[set[str], set[str]], Change | None]] = {
    "all to 16, images to 8, the batch to 2": lambda names, shared: _halved_to(
        2 if names <= _BATCH else 8 if names <= _IMAGE else 4 if names <= _GROUPS else 16
    ),
    "all to 16": lambda names, shared: _halved_to(4 if names <= _GROUPS else 16),
    "large ones by 32": lambda names, shared: _by_32,
    "batch to 2": lambda names, shared: _halved_to(2) if names <= _BATCH else None,
    "those of get_inputs to 64": lambda names, shared: None if names & shared else _halved_to(64),
}
"""How numbers change, by the names that an assignment binds and those that other parts than get_inputs use."""


def _names_of(statement: ast.Assign) -> set[str]:
    """The names that an assignment binds."""
    return {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _names_used(tree: ast.Module, accepted: Callable[[str], bool]) -> set[str]:
    """The names that the functions and classes of these names read."""
    parts = [part for part in tree.body if isinstance(part, (ast.FunctionDef, ast.ClassDef)) and accepted(part.name)]
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}

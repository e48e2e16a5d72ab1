"""Values that are used once, right where they are: written in place of their names, as a person would.

The emitter gives every operation of the graph a name; `inlined` takes back those that a single later expression reads,
where nothing but other such names stands in between, so that the order of loads, stores and barriers stays.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from cutesmith.patterns.writing.renaming import KEPT, pieces_of
from cutesmith.patterns.writing.wrapping import WIDTH
from cutesmith.problems.contract import parse
from cutesmith.syntax import Walks, walk

_BINDING: dict[type[ast.operator], int] = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2}  # how tightly
_GENERATED = re.compile(r"\w+(_\d+|_v)$")
_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Subscript, ast.Attribute, ast.Tuple)
_SCOPES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""What is inside may be evaluated elsewhere, or not at all."""


def inlined(section: str) -> str:
    """The section without the generated names that one expression reads, lines up to WIDTH columns."""
    return "".join(map(_inlined, pieces_of(section)))


@functools.lru_cache(maxsize=KEPT)
def _inlined(piece: str) -> str:
    lines, tree, walks = piece.split("\n"), parse(piece, "piece"), Walks()
    for function in walks.below(tree):
        if isinstance(function, ast.FunctionDef):
            names = [node for node in walks.below(function) if isinstance(node, ast.Name)]
            uses = Counter((node.id, isinstance(node.ctx, ast.Store)) for node in names)
            once = {name for name, stored in uses if stored and uses[name, True] == uses[name, False] == 1}
            for block in blocks(walks.below(function)):
                _shorten(block, lines, {name for name in once if _GENERATED.match(name)})
    return "\n".join(line for line in lines if line != _GONE)


_GONE = "\0"


def blocks(function: Iterable[ast.AST]) -> Iterator[list[ast.stmt]]:
    """The lists of statements in a function of these nodes, its own first."""
    for node in function:
        for part in ("body", "orelse"):
            block = getattr(node, part, None)
            if isinstance(block, list) and block:
                yield block


def _shorten(block: list[ast.stmt], lines: list[str], once: set[str]) -> None:
    """Write the names of a block in place; `waiting` are those since the last statement that stays."""
    waiting: dict[str, tuple[int, ast.expr, str]] = {}  # line, value, and its text
    for statement in block:
        at = statement.lineno - 1
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)) or not _is_one_line(
            statement, lines
        ):
            waiting = {}
            continue
        text = lines[at]
        for node in sorted(_replaceable(statement), key=lambda each: each.col_offset, reverse=True):
            if node.id in waiting:
                line, value, code = waiting[node.id]
                start, end = _columns(node, lines[at])
                if _needs_parentheses(value, node, statement) and text[start - 1 : start] + text[end : end + 1] != "()":
                    code = f"({code})"
                if len(longer := text[:start] + code + text[end:]) <= WIDTH:
                    text, lines[line] = longer, _GONE
                    del waiting[node.id]
        lines[at] = text
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in once and not _branches(statement):
            assert isinstance(statement, ast.Assign)
            waiting[target.id] = at, statement.value, text.split(" = ", 1)[1]
        else:
            waiting = {}


def _is_one_line(statement: ast.stmt, lines: list[str]) -> bool:
    """Whether a statement is a line of its own, without a comment that its value would lose."""
    line = lines[statement.lineno - 1]
    return statement.lineno == statement.end_lineno and len(line.encode()) == statement.end_col_offset


def _replaceable(statement: ast.stmt) -> Iterator[ast.Name]:
    """The names that a statement reads before anything else happens."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)


def _branches(statement: ast.stmt) -> bool:
    return any(isinstance(node, _SCOPES) for node in walk(statement))


def _needs_parentheses(value: ast.expr, node: ast.Name, statement: ast.stmt) -> bool:
    """Whether an expression must be enclosed where the name stands."""
    if isinstance(value, _ATOMS):
        return False
    parent = next(each for each in walk(statement) if node in ast.iter_child_nodes(each))
    if isinstance(parent, ast.BinOp) and isinstance(value, ast.BinOp):
        outer, inner = _BINDING.get(type(parent.op)), _BINDING.get(type(value.op))
        return outer is None or inner is None or not (inner > outer or (inner == outer and node is parent.left))
    is_argument = isinstance(parent, ast.Call) and node is not parent.func
    is_index = isinstance(parent, ast.Subscript) and node is not parent.value
    return not (is_argument or is_index or isinstance(parent, (ast.stmt, ast.keyword, ast.Tuple)))


def _columns(node: ast.Name, line: str) -> tuple[int, int]:
    start = len(line.encode()[: node.col_offset].decode())
    return start, start + len(node.id)

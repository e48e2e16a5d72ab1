"""Branches that host code of a kernel's file takes, noted by marks that the file is loaded with; lines stay."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

Place = tuple[int, int]  # line and column of what is run where a condition holds, or does not
MARK = "_branch_taken"
_TRACED = ("jit", "kernel")  # decorators of functions that the DSL runs from its own copy of their source


@dataclass
class _Notes:
    places: set[Place] = field(default_factory=set)


_notes = _Notes()


def note(line: int, column: int) -> None:
    """What a mark calls."""
    _notes.places.add((line, column))


@contextmanager
def noted() -> Iterator[set[Place]]:
    """The branches that are taken within it, as they are."""
    before, _notes.places = _notes.places, set()
    try:
        yield _notes.places
    finally:
        _notes.places = before


def with_marks(tree: ast.Module) -> ast.Module:
    """The file's tree with a mark in each branch of functions that run on the host, and in each absent `else`."""
    tree = _Marks().visit(tree)
    own = ast.ImportFrom(module=__name__, names=[ast.alias(name="note", asname=MARK)], level=0)
    first = next((i for i, statement in enumerate(tree.body) if not _comes_first(statement)), len(tree.body))
    tree.body.insert(first, own)
    return ast.fix_missing_locations(tree)


def _comes_first(statement: ast.stmt) -> bool:
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    return future or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def never_taken(functions: Iterable[ast.AST], taken: Container[Place]) -> list[int]:
    """The lines at which blocks of conditions begin that were never taken, by the marks that were.

    Not of absent blocks, of those that end in `raise`, which refuse, nor of those within one that is told. The arms of
    a conditional expression are blocks too.
    """
    waiting, found = list(functions), list[int]()
    while waiting:
        node = waiting.pop()
        missed = [block for block in _blocks(node) if block and (block[0].lineno, block[0].col_offset) not in taken]
        found += [block[0].lineno for block in missed if not isinstance(block[-1], ast.Raise)]
        waiting += [child for child in ast.iter_child_nodes(node) if not any(child in block for block in missed)]
    return sorted({*found})


def _blocks(node: ast.AST) -> Sequence[Sequence[ast.stmt | ast.expr]]:
    if isinstance(node, ast.If):
        return node.body, node.orelse
    return ([node.body], [node.orelse]) if isinstance(node, ast.IfExp) else ()


class _Marks(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if not any(_word_of(decorator) in _TRACED for decorator in node.decorator_list):
            self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        node.body = _marked(node.body, node)
        node.orelse = _marked(node.orelse, node, shift=1)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.body = _marked(node.body, node)
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body = _marked(node.body, node)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        self.generic_visit(node)
        node.body = _marked(node.body, node)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        """`note(…) or value` is the value, as the mark gives None."""
        self.generic_visit(node)
        arms = [ast.BoolOp(ast.Or(), [_call(arm), arm]) for arm in (node.body, node.orelse)]
        node.body, node.orelse = (ast.copy_location(both, both.values[1]) for both in arms)
        return node


def _word_of(decorator: ast.expr) -> str:
    """The last name of a decorator, such as "jit" of `@cute.jit(preprocess=True)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _marked(body: list[ast.stmt], owner: ast.AST, *, shift: int = 0) -> list[ast.stmt]:
    """A block that begins with its mark; `shift` tells the absent `else` of a condition from its other block."""
    place = body[0] if body else owner
    return [ast.copy_location(ast.Expr(_call(place, 0 if body else shift)), place), *body]


def _call(place: ast.AST, shift: int = 0) -> ast.Call:
    line, column = getattr(place, "lineno", 0), getattr(place, "col_offset", 0) + shift
    arguments: list[ast.expr] = [ast.Constant(line), ast.Constant(column)]
    return ast.copy_location(ast.Call(ast.Name(MARK, ast.Load()), arguments, []), place)

"""Names in a section of Python text replaced; the section cut into pieces, most of which other sections have too."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping

from cutesmith.errors import ContractError
from cutesmith.problems.contract import parse
from cutesmith.syntax import walk

KEPT = 4096
"""Pieces that are remembered. Kernels of one chain have most of them in common, and so have their configurations."""

_STARTS = re.compile(r"^(?=[@\w])(?!(?:else|elif|except|finally)\b)", re.MULTILINE)


@functools.lru_cache(maxsize=KEPT)
def pieces_of(section: str) -> tuple[str, ...]:
    """The text cut before its top-level statements; whole where such a line is inside one, as in a long string."""
    pieces = [""]
    for part in _STARTS.split(section):
        if pieces[-1].rstrip("\n").rpartition("\n")[2].startswith("@"):  # a decorator is of what follows
            pieces[-1] += part
        else:
            pieces.append(part)
    return tuple(filter(None, pieces)) if all(map(_parses, pieces)) else (section,)


@functools.lru_cache(maxsize=KEPT)
def _parses(piece: str) -> bool:
    try:
        parse(piece, "piece")
    except ContractError:
        return False
    return True


def renamed(section: str, renames: Mapping[str, str]) -> str:
    """The section with its module-level names replaced, wherever they are bound or read as such."""
    known = tuple(renames.items())
    return "".join(_replaced(piece, tuple(each for each in known if each[0] in piece)) for piece in pieces_of(section))


@functools.lru_cache(maxsize=KEPT)
def _replaced(piece: str, renames: tuple[tuple[str, str], ...]) -> str:
    """Rename at the places that the AST gives, from the last to the first; columns are in UTF-8 bytes."""
    if not renames:
        return piece
    lines = [line.encode() for line in piece.split("\n")]
    for line, column, old, new in sorted(set(_places(parse(piece, "piece"), lines, dict(renames))), reverse=True):
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
    parameters = [each for each in walk(node.args) if isinstance(each, ast.arg)]
    outside: list[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    outside += [each.annotation for each in parameters if each.annotation]
    body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    if isinstance(node, ast.FunctionDef):
        yield from _name_place(node, lines, renames)
        outside += [*node.decorator_list, *filter(None, [node.returns])]
    own = {each.arg for each in parameters} | {name for each in body for name in _stored(each)}
    own -= {name for each in body for inner in walk(each) if isinstance(inner, ast.Global) for name in inner.names}
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

"""Where a name changes its type: the assignments behind the DSL's TYPE_UNSTABLE_JOIN, which names the region alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cutesmith.compiling.compile_errors import CompileError
from cutesmith.syntax import parse_python


def pointed_at_assignment(error: CompileError, source: str, path: Path) -> CompileError:
    """The error with the line of the assignment inside the region, where the DSL names only where the region begins.

    `source` is the text of the file; every other error stays as it is.
    """
    unstable = error.unstable
    region = _region(source, error.line) if unstable else None
    if unstable is None or region is None:
        return error
    lines = list(dict.fromkeys(_assignments(region, unstable.name)))
    if not lines:
        return error
    text = source.splitlines()
    shown = [f"{path}:{line}: {text[line - 1].strip()}" for line in lines]
    told = f"`{unstable.name}` is assigned inside this region at\n  " + "\n  ".join(shown)
    fix = f"Give it the type {unstable.after} before line {error.line} too, or convert it there to {unstable.before}."
    return replace(error, line=lines[0], message=f"{error.message}\n{told}\n{fix}")


def _region(source: str, line: int) -> ast.stmt | None:
    """The loop or branch that begins at this line."""
    try:
        nodes = list(ast.walk(parse_python(source)))
    except (SyntaxError, ValueError):
        return None
    regions = (node for node in nodes if isinstance(node, (ast.For, ast.While, ast.If)) and node.lineno == line)
    return next(regions, None)


def _assignments(region: ast.stmt, name: str) -> Iterator[int]:
    """The lines of a region that assign a name, in their order."""
    bound = (n for n in ast.walk(region) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name)
    yield from sorted(node.lineno for node in bound)

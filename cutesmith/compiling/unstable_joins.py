"""Where names change their type: the assignments behind the DSL's TYPE_UNSTABLE_JOIN, which names one region alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.compiling.compile_errors import CompileError
from cutesmith.recording.sessions import UnstableName
from cutesmith.syntax import parse_python


def pointed_at_assignments(
    error: CompileError, unstable: Sequence[UnstableName], source: str, path: Path
) -> CompileError:
    """The error with every name of the compilation that has two types, and where the regions assign it.

    `source` is the text of the file. Where no name is `unstable` the error stays as it is.
    """
    first = {one.name: one for one in reversed(unstable) if one.line}
    told = [_told(first[name], source, path) for name in dict.fromkeys(one.name for one in unstable) if name in first]
    if error.code != "TYPE_UNSTABLE_JOIN" or not told:
        return error
    lines = [line for _, line in told]
    return replace(error, line=lines[0], message="\n".join((error.message, *(text for text, _ in told))))


def _told(unstable: UnstableName, source: str, path: Path) -> tuple[str, int]:
    """What is wrong with a name and what to do, and the line of its first assignment in the region."""
    name, region = unstable.name, _region(source, unstable.line)
    lines = list(dict.fromkeys(_assignments(region, name))) if region else []
    text = source.splitlines()
    shown = "".join(f"\n  {path}:{line}: {text[line - 1].strip()}" for line in lines)
    where = f"is assigned in the region that begins at line {unstable.line}:{shown}" if shown else "changes its type"
    types = f"{unstable.before} before the region, {unstable.after} in it"
    return f"`{name}` ({types}) {where}\n{_fix(unstable)}", lines[0] if lines else unstable.line


def _fix(unstable: UnstableName) -> str:
    before, after, line = unstable.before, unstable.after, unstable.line
    if before == "None":
        return f"Give `{unstable.name}` a value of type {after} before line {line}: a dynamic region keeps no None."
    if after == "None":
        return f"Assign a {before} in the region: a dynamic region keeps no None."
    if "<" in before:  # such as list<0>, by its length
        return f"Give `{unstable.name}` its final length before line {line}, or unroll with cutlass.range_constexpr."
    return f"Give `{unstable.name}` the type {after} before line {line} too, or convert it in the region to {before}."


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

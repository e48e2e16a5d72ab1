"""Which other examples an example imports: read from its syntax tree, found by path in the index; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from cutesmith.examples.index.records import Example
from cutesmith.syntax import parse_python


def siblings(example: Example, text: bytes, by_path: Mapping[tuple[str, str], Example]) -> tuple[str, ...]:
    """Ids of the examples of the same source that `example` imports, sorted; none for packages, which are installed.

    `by_path` maps (source, path) to the records of the index. A module is looked for beside the example and in every
    folder above it, as the examples put those on `sys.path`.
    """
    if example.source == "package" or not example.path.endswith(".py"):
        return ()
    folders = PurePosixPath(example.path).parents
    found = {
        record.id
        for module in _imported(text)
        for folder in folders
        if (record := by_path.get((example.source, (folder / module).as_posix()))) is not None
    }
    return tuple(sorted(found - {example.id}))


def _imported(text: bytes) -> Iterator[PurePosixPath]:
    """The files that the imports may mean, relative to some folder: `a.b` is a/b.py or a/b/__init__.py."""
    for statement in ast.walk(_tree(text)):
        if isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            modules = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in statement.names)]
        else:
            continue
        for module in filter(None, modules):
            path = PurePosixPath(*module.split("."))
            yield from (path.with_suffix(".py"), path / "__init__.py")


def _tree(text: bytes) -> ast.AST:
    try:
        return parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])

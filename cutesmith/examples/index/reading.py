"""One source file as the index sees it: its bytes, its code and the names in it; nothing is imported or run.

A notebook counts as the code of its cells, one after the other, without the lines that only IPython understands.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from cutesmith.errors import UsageError
from cutesmith.syntax import parse_python

MAGIC = re.compile(r"^\s*[%!]")
SPDX = re.compile(r"SPDX-License-Identifier:\s*([\w.+-]+)")


@dataclass(frozen=True)
class Source:
    """A file that was read: its path as the record will have it, the sha256 of its bytes, its code and its lines."""

    path: str
    sha256: str
    code: str
    lines: int

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return _parsed(self.code, self.path)

    @cached_property
    def names(self) -> str:
        """Every identifier, dotted name, imported module and keyword of the code, one a line, sorted."""
        return "\n".join(sorted(set(_names(self.tree))))

    @cached_property
    def strings(self) -> str:
        """Every string of the code that is not a docstring, one after the other: options, PTX, format names."""
        skipped = {id(statement.value) for statement in _bare_expressions(self.tree)}
        found = (n for n in ast.walk(self.tree) if isinstance(n, ast.Constant) and id(n) not in skipped)
        return "\n".join(n.value for n in found if isinstance(n.value, str))

    @property
    def docstring(self) -> str:
        """The module's docstring, or the empty string."""
        return ast.get_docstring(self.tree) or ""

    @property
    def licence(self) -> str:
        """The SPDX identifier that the file states, or the empty string."""
        found = SPDX.search(self.code[:4000])
        return found.group(1) if found else ""


def read_source(file: Path, path: str) -> Source:
    """Read `file`, which the record will call `path`; raises UsageError where it is no UTF-8 text or does not parse."""
    data = file.read_bytes()
    try:
        text = data.decode("utf-8")
        code, lines = _notebook(text) if PurePosixPath(path).suffix == ".ipynb" else (text, len(text.splitlines()))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: no readable source: {error}", hint="Look at the file; it is not indexed") from error
    source = Source(path=path, sha256=hashlib.sha256(data).hexdigest(), code=code, lines=lines)
    source.tree  # noqa: B018 - a file that does not parse is refused here, not at its first use
    return source


def _parsed(code: str, path: str) -> ast.Module:
    try:
        return parse_python(code)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UsageError(f"{path}:{line}: does not parse: {error}", hint="It is not indexed until it does") from error


def _notebook(text: str) -> tuple[str, int]:
    cells = json.loads(text)["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    code = (line for kind, source in sources if kind == "code" for line in source.splitlines())
    return "\n".join("" if MAGIC.match(line) else line for line in code), sum(len(s.splitlines()) for _, s in sources)


def _bare_expressions(tree: ast.AST) -> Iterator[ast.Expr]:
    """Statements that are nothing but a string: docstrings, and the long comments that some examples begin with."""
    return (n for n in ast.walk(tree) if isinstance(n, ast.Expr))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield dotted(node)
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.arg, ast.keyword)) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute or name; what is no name (`f().x`) is left out: `.x`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return dotted(node.func)
    return node.id if isinstance(node, ast.Name) else ""

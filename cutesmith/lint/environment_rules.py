"""CS110–CS112: environment variables of the DSL that a file sets."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from cutesmith.lint.source import Source, finding
from cutesmith.lint.symbols import SymbolTable
from cutesmith.verdicts import Finding

PREFIX = "CUTE_DSL_"
SETTERS = ("os.environ.setdefault", "os.putenv")


def check(source: Source, symbols: SymbolTable | None) -> Iterator[Finding]:
    """Findings of CS110–CS112 in one file."""
    for node, name, value in _settings(source):
        if not name.startswith(PREFIX):
            continue
        if symbols is not None:
            yield from _judge(symbols, node, name[len(PREFIX) :], value)
        if name == "CUTE_DSL_ARCH" and _after_import(source, node):
            yield finding("CS112", node, "CUTE_DSL_ARCH is set after the DSL was imported, when it is no longer read.")


def _settings(source: Source) -> Iterator[tuple[ast.AST, str, object]]:
    """Every `os.environ[NAME] = value`, `os.environ.setdefault(NAME, value)` and `os.putenv`, with literal names."""
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if source.dotted(target.value) == "os.environ" and isinstance(target.slice, ast.Constant):
                yield node, str(target.slice.value), getattr(node.value, "value", None)
        elif isinstance(node, ast.Call) and source.dotted(node.func) in SETTERS and len(node.args) == 2:
            name = getattr(node.args[0], "value", "")
            yield node, str(name), getattr(node.args[1], "value", None)


def _judge(symbols: SymbolTable, node: ast.AST, suffix: str, value: object) -> Iterator[Finding]:
    deprecated = symbols.environment["deprecated"]
    words = symbols.environment["keep"]
    if suffix in deprecated:
        text = f"{PREFIX}{suffix} is deprecated; {PREFIX}KEEP={deprecated[suffix]} does the same."
        yield finding("CS110", node, text, f"Set {PREFIX}KEEP={deprecated[suffix]}.")
    elif suffix not in symbols.environment["variables"]:
        near = difflib.get_close_matches(suffix, symbols.environment["variables"], n=1)
        hint = f"Did you mean {PREFIX}{near[0]}?" if near else ""
        yield finding("CS111", node, f"The DSL reads no variable {PREFIX}{suffix}.", hint)
    elif suffix == "KEEP" and isinstance(value, str) and words:
        for word in (part.strip().lower() for part in value.split(",")):
            if word and word not in words:
                text = f"CUTE_DSL_KEEP knows no word {word!r} and ignores it; it knows {', '.join(words)}."
                yield finding("CS111", node, text)


def _after_import(source: Source, node: ast.AST) -> bool:
    """Whether a module-level import of the DSL stands above a module-level statement."""
    if source.function_of(node) is not None:
        return False
    line = getattr(node, "lineno", 0)
    for other in source.tree.body:
        names = [alias.name for alias in other.names] if isinstance(other, ast.Import) else []
        names += [other.module or ""] if isinstance(other, ast.ImportFrom) and not other.level else []
        if other.lineno < line and any(name.split(".")[0] == "cutlass" for name in names):
            return True
    return False

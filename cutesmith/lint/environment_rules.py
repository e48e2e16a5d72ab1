"""CS110–CS112: environment variables of the DSL that a file sets."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from cutesmith.lint.rule import Rule
from cutesmith.lint.source import Source, finding
from cutesmith.lint.symbols import SymbolTable
from cutesmith.verdicts import Finding

CS110 = Rule(
    "CS110",
    "warning",
    "the environment variable is deprecated",
    "`CUTE_DSL_KEEP_IR`, `_PTX`, `_CUBIN` and `_SASS` warn; one variable, `CUTE_DSL_KEEP`, takes a list of words.",
    "Set CUTE_DSL_KEEP to the words wanted, for example CUTE_DSL_KEEP=ptx,cubin.",
    'import os\nos.environ["CUTE_DSL_KEEP_PTX"] = "1"',
    'import os\nos.environ["CUTE_DSL_KEEP"] = "ptx"',
)

CS111 = Rule(
    "CS111",
    "warning",
    "the DSL ignores this environment variable",
    "Unknown `CUTE_DSL_*` variables and unknown words of `CUTE_DSL_KEEP` are ignored in silence.",
    "Use a variable that the DSL reads, or a word that CUTE_DSL_KEEP knows (the message lists them).",
    'import os\nos.environ["CUTE_DSL_KEEP"] = "ptx,sas"',
    'import os\nos.environ["CUTE_DSL_KEEP"] = "ptx,sass"',
)

CS112 = Rule(
    "CS112",
    "warning",
    "the architecture is set too late",
    "`CUTE_DSL_ARCH` is read when the DSL is imported; set afterwards it changes nothing, and with no GPU the "
    "DSL silently compiles for sm_100a.",
    "Set it before the first `import cutlass`, or pass `--gpu-arch=…` in the options of cute.compile.",
    'import os\nos.environ["CUTE_DSL_ARCH"] = "sm_90a"',
    "def host_arch():\n    import os\n    return os.environ.get('CUTE_DSL_ARCH')",
)

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
            yield finding(CS112, node, "CUTE_DSL_ARCH is set after the DSL was imported, when it is no longer read.")


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
    environment = symbols.environment
    deprecated, words = environment.deprecated, environment.keep
    if suffix in deprecated:
        text = f"{PREFIX}{suffix} is deprecated; {PREFIX}KEEP={deprecated[suffix]} does the same."
        yield finding(CS110, node, text, f"Set {PREFIX}KEEP={deprecated[suffix]}.")
    elif suffix not in environment.variables:
        near = difflib.get_close_matches(suffix, environment.variables, n=1)
        hint = f"Did you mean {PREFIX}{near[0]}?" if near else ""
        yield finding(CS111, node, f"The DSL reads no variable {PREFIX}{suffix}.", hint)
    elif suffix == "KEEP" and isinstance(value, str) and words:
        for word in (part.strip().lower() for part in value.split(",")):
            if word and word not in words:
                text = f"CUTE_DSL_KEEP knows no word {word!r} and ignores it; it knows {', '.join(words)}."
                yield finding(CS111, node, text)


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

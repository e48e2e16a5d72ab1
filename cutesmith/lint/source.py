"""One source file, read and parsed but never imported, with what every rule asks of it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from cutesmith.errors import ContractError
from cutesmith.lint.rule import Rule
from cutesmith.lint.scopes import FunctionNode, ScopeMap
from cutesmith.problems.contract import problem_source
from cutesmith.syntax import parse_python
from cutesmith.verdicts import Finding

IGNORE = re.compile(r"#\s*cutesmith:\s*ignore(?:\[([^\]]*)\])?")
KERNEL_DECORATORS = frozenset({"cutlass.cute.kernel", "cutlass.kernel", "cutlass.cute.experimental.kernel"})
JIT_DECORATORS = frozenset({"cutlass.cute.jit", "cutlass.jit", "cutlass.cute.experimental.jit"})

_Node = TypeVar("_Node", bound=ast.AST)


class SyntaxFault(ContractError):
    """The file is not Python: `line` and `column` (from 1) say where."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class Source:
    """A parsed file: tree, scopes, parents, traced functions and suppression comments."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = _parse(path, text)
        self.scopes = ScopeMap(self.tree)

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read and parse a file; ContractError when there is none, it is too large, no UTF-8, or no Python."""
        return cls(path, problem_source(path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node, in source order of their parents."""
        return list(ast.walk(self.tree))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parents of a node, the nearest first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def dotted(self, node: ast.AST) -> str | None:
        """The dotted name that an expression stands for, when its root is an import."""
        return self.scopes.dotted(node)

    def calls(self, *dotted: str) -> Iterator[ast.Call]:
        """Calls of any of these dotted names."""
        return (node for node in self.all(ast.Call) if self.dotted(node.func) in dotted)

    def all(self, kind: type[_Node]) -> Iterator[_Node]:
        """Every node of one kind."""
        return (node for node in self.nodes if isinstance(node, kind))

    @cached_property
    def functions(self) -> list[FunctionNode]:
        """Every `def`, methods and nested ones included."""
        return [node for node in self.nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @cached_property
    def traced(self) -> dict[FunctionNode, str]:
        """Functions that the DSL rewrites and traces, with their kind: "kernel" or "jit"."""
        return {node: kind for node in self.functions if (kind := self._traced_kind(node))}

    def _traced_kind(self, node: FunctionNode) -> str:
        for decorator in node.decorator_list:
            name = self.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name in KERNEL_DECORATORS | JIT_DECORATORS and not _without_preprocessor(decorator):
                return "kernel" if name in KERNEL_DECORATORS else "jit"
        return ""

    def function_of(self, node: ast.AST) -> FunctionNode | None:
        """The innermost `def` around a node."""
        return next((a for a in self.ancestors(node) if isinstance(a, (ast.FunctionDef, ast.AsyncFunctionDef))), None)

    def traced_of(self, node: ast.AST) -> str | None:
        """The kind of the traced function around a node, nested helpers included; None in host code."""
        return next((self.traced[a] for a in self.ancestors(node) if a in self.traced), None)

    def top_level(self, name: str) -> FunctionNode | None:
        """The module's own function of that name; the last definition wins, as in Python."""
        found = [n for n in self.tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == name]
        return found[-1] if found else None

    @cached_property
    def uses_dsl(self) -> bool:
        """Whether the file imports the DSL at all."""
        return any(
            (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "cutlass" for a in node.names))
            or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "cutlass")
            for node in self.nodes
        )

    @cached_property
    def ignores(self) -> dict[int, frozenset[str]]:
        """Rule ids suppressed on each line; an empty set suppresses every rule there."""
        found: dict[int, frozenset[str]] = {}
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                match = IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
                if match:
                    found[token.start[0]] = frozenset(re.findall(r"[A-Za-z]+\d+", (match[1] or "").upper()))
        except (tokenize.TokenError, SyntaxError):
            return found
        return found

    def suppressed(self, finding: Finding) -> bool:
        """Whether a `# cutesmith: ignore[ID]` comment on the finding's line covers it."""
        ids = self.ignores.get(finding.line)
        return ids is not None and (not ids or finding.rule in ids)


def is_tracer(source: Source, decorator: ast.expr) -> bool:
    """Whether a decorator is the DSL's `jit` or `kernel`, called or not."""
    name = source.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name in KERNEL_DECORATORS | JIT_DECORATORS


def finding(rule: Rule, node: ast.AST | int, message: str, fix: str = "", severity: str = "") -> Finding:
    """A finding of one rule at a node or line; fix and severity default to the rule's own."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 1)
    column = 1 if isinstance(node, int) else getattr(node, "col_offset", 0) + 1
    return Finding(
        rule=rule.id, severity=severity or rule.severity, line=line, column=column, message=message, fix=fix or rule.fix
    )


def _without_preprocessor(decorator: ast.expr) -> bool:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return any(k.arg == "preprocess" and isinstance(k.value, ast.Constant) and k.value.value is False for k in keywords)


def _parse(path: Path, text: str) -> ast.Module:
    try:
        return parse_python(text, path)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        raise SyntaxFault(f"{path}, line {line}: {error.msg}.", line, column) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ContractError(f"{path} cannot be parsed: {error}.") from error

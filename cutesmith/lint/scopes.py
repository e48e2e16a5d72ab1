"""Which dotted name a piece of source stands for: imports, their aliases, and everything that hides them.

Only names that the file itself binds to a module, or to an attribute of one, resolve. Parameters, loop variables,
results of calls and names that are bound twice to different things are unknown, and unknown things are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *COMPREHENSIONS)


@dataclass
class Scope:
    """One lexical scope: what each name is bound to (a dotted name, an expression to follow, or None for unknown)."""

    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[str | ast.expr | None]] = field(default_factory=dict)
    outer_names: set[str] = field(default_factory=set)  # declared global or nonlocal
    meanings: dict[str, str | None] = field(default_factory=dict)

    def bind(self, name: str, value: str | ast.expr | None) -> None:
        """Record one binding of a name."""
        self.bindings.setdefault(name, []).append(value)

    def meaning(self, name: str, dotted: Callable[[ast.AST], str | None]) -> str | None:
        """The one dotted name that every binding of a name here stands for; None when they differ or are unknown."""
        if name not in self.meanings:
            self.meanings[name] = None  # what it means while it refers to itself: `x = x.attribute`
            values = self.bindings[name]
            found = {value if value is None or isinstance(value, str) else dotted(value) for value in values}
            self.meanings[name] = found.pop() if len(found) == 1 else None
        return self.meanings[name]

    def find(self, name: str) -> Scope | None:
        """The scope that a name read here comes from: class bodies are seen from themselves only."""
        scope: Scope | None = self
        while scope is not None:
            hidden = isinstance(scope.node, ast.ClassDef) and scope is not self
            if not hidden and name in scope.bindings and name not in scope.outer_names:
                return scope
            scope = scope.parent
        return None


class ScopeMap:
    """The scopes of one file, and the dotted names of expressions in it."""

    def __init__(self, tree: ast.Module) -> None:
        self._scopes: dict[ast.AST, Scope] = {}
        self._of: dict[ast.AST, Scope] = {}
        self._enter(tree, None)

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which a node is read."""
        return self._of[node]

    def inner_scope(self, node: ast.AST) -> Scope:
        """The scope that a function, class or module opens."""
        return self._scopes[node]

    def dotted(self, node: ast.AST) -> str | None:
        """The dotted name of a `Name` or `Attribute` chain whose root is an import; None when it is anything else."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        home = self._of[node].find(node.id) if isinstance(node, ast.Name) else None
        root = home.meaning(node.id, self.dotted) if home is not None and isinstance(node, ast.Name) else None
        return ".".join([root, *reversed(attributes)]) if root else None

    def _enter(self, node: ast.AST, parent: Scope | None) -> None:
        scope = Scope(node, parent)
        self._scopes[node] = scope
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for argument in _arguments(node.args):
                scope.bind(argument, None)
        for child in _inside(node):
            self._visit(child, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        self._of[node] = scope
        _bind(node, scope)
        if isinstance(node, SCOPES):
            for child in _outside(node):
                self._visit(child, scope)
            self._enter(node, scope)
        else:
            for child in ast.iter_child_nodes(node):
                self._visit(child, scope)


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            yield argument.arg


def _inside(node: ast.AST) -> list[ast.AST]:
    """Children of a scope that are read within it."""
    if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return list(node.body)
    if isinstance(node, ast.Lambda):
        return [node.body]
    return list(ast.iter_child_nodes(node))


def _outside(node: ast.AST) -> list[ast.AST]:
    """Children of a scope that are read outside it: decorators, defaults, annotations, bases."""
    if isinstance(node, (ast.Module, *COMPREHENSIONS)):
        return []
    inside = {id(child) for child in _inside(node)}
    return [child for child in ast.iter_child_nodes(node) if id(child) not in inside]


def _bind(node: ast.AST, scope: Scope) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.split(".")[0]
            scope.bind(alias.asname or root, alias.name if alias.asname else root)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            absolute = node.module and not node.level
            scope.bind(alias.asname or alias.name, f"{node.module}.{alias.name}" if absolute else None)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope.bind(node.name, None)
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        scope.outer_names.update(node.names)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        scope.bind(node.targets[0].id, node.value)
    else:
        _bind_unknown(node, scope)


def _bind_unknown(node: ast.AST, scope: Scope) -> None:
    """Names bound to something that no dotted name stands for."""
    if isinstance(node, ast.ExceptHandler) and node.name:
        scope.bind(node.name, None)
    elif isinstance(node, ast.Assign):
        _bind_targets(node.targets, scope)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)):
        if isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            scope.bind(node.target.id, node.value)
        else:
            _bind_targets([node.target], scope)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        _bind_targets([item.optional_vars for item in node.items if item.optional_vars], scope)
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        scope.bind(node.name, None)


def _bind_targets(targets: list[ast.expr], scope: Scope) -> None:
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.bind(node.id, None)

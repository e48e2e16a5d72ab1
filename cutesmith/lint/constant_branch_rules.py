"""CS212: a name that a branch decided while tracing may have left without a value, assigned in a staged region."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cutesmith.lint.rule import Rule
from cutesmith.lint.source import Source, finding
from cutesmith.lint.staging import NESTED, is_staged, walk_function
from cutesmith.verdicts import Finding

CS212 = Rule(
    "CS212",
    "warning",
    "a name of a constexpr branch is assigned again in a staged region",
    "error[TYPE_UNSTABLE_JOIN]: where `const_expr` was false the name is None when "
    "the region begins, and has a type after it; where it was true, both types must be equal.",
    "Take another name in the region, or assign this one before the branch with the type that it keeps.",
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        if cutlass.const_expr(gX.element_type is cutlass.Float32):
            value = gX[i]
            gX[i] = value + value
        if i < n:
            value = gX[0]
            gX[i] = value
    """,
    """
    @cute.kernel
    def kernel(gX: cute.Tensor, n: cutlass.Int32):
        i, _, _ = cute.arch.thread_idx()
        if cutlass.const_expr(gX.element_type is cutlass.Float32):
            value = gX[i]
            gX[i] = value + value
        if i < n:
            first = gX[0]
            gX[i] = first
    """,
)


def check(source: Source) -> Iterator[Finding]:
    """Findings about names that have a value after some constexpr branches only."""
    for function in source.traced:
        parameters = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        yield from _Path(source, parameters).through(function.body)


@dataclass
class _Path:
    """One way through a function: names that have a value there, and those that may be None, with the line of each."""

    source: Source
    bound: set[str] = field(default_factory=set)
    open: dict[str, int] = field(default_factory=dict)

    def through(self, body: Iterable[ast.stmt]) -> Iterator[Finding]:
        """Findings of the statements, in their order."""
        for statement in body:
            if isinstance(statement, ast.If) and not is_staged(statement):
                yield from self._either(statement)
            elif is_staged(statement):
                yield from self._region(statement)
            elif isinstance(statement, (ast.For, ast.While, ast.With)):
                self._bind(_stored([getattr(statement, "target", None), *getattr(statement, "items", [])]))
                yield from self.through(statement.body)
            elif not isinstance(statement, NESTED):
                self._bind(_stored([statement]))

    def _bind(self, names: Iterable[str]) -> None:
        for name in names:
            self.bound.add(name)
            self.open.pop(name, None)

    def _either(self, branch: ast.If) -> Iterator[Finding]:
        """Both branches, of which tracing takes one: what only one of them binds may be None afterwards."""
        ways = [_Path(self.source, set(self.bound), dict(self.open)) for _ in range(2)]
        for way, body in zip(ways, (branch.body, branch.orelse)):
            yield from way.through(body)
        some = (ways[0].bound | ways[1].bound) - self.bound
        both = ways[0].bound & ways[1].bound
        self.open = {**ways[0].open, **ways[1].open, **dict.fromkeys(some - both, branch.lineno)}
        self._bind(both)

    def _region(self, region: ast.stmt) -> Iterator[Finding]:
        """A staged region: names assigned in it are compared with what they were; names that begin in it end with it.

        The counter of a loop is not compared.
        """
        loops = [node for node in (region, *walk_function(region)) if isinstance(node, ast.For)]
        counters = {id(loop.target) for loop in loops}
        stored = {
            node.id: node
            for node in reversed(list(walk_function(region)))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in counters
        }
        for name in stored.keys() & self.open.keys():
            line = self.open.pop(name)
            text = f"`{name}` has a value only where the `const_expr` of line {line} decided so, and is assigned here."
            yield finding(CS212, stored[name], text)
        for body in (getattr(region, "body", []), getattr(region, "orelse", [])):
            yield from _Path(self.source, set(self.bound), dict(self.open)).through(body)


def _stored(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    """Names that these bind."""
    for node in filter(None, nodes):
        for part in (node, *walk_function(node)):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id

"""A pointwise function of one value as factor * value + term, where it is that."""

from __future__ import annotations

from collections.abc import Callable

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import is_float
from cutesmith.patterns.graph.nodes import Node

Affine = tuple[Node | None, Node | None]
"""The factor and the term; None for 0."""


class NotAffineError(Exception):
    """A function of a value is not a multiple of it plus what does not depend on it."""


def affine_in(build: GraphBuilder, body: Node, value: Node) -> Affine:
    """`body` by `value`, both of floats; NotAffineError where it is another function of it."""
    return _Decomposition(build, value).of(body)


class _Decomposition:
    def __init__(self, build: GraphBuilder, value: Node) -> None:
        self.build = build
        self.found: dict[int, Affine] = {id(value): (build.constant(1, value.dtype), None)}

    def of(self, node: Node) -> Affine:
        if id(node) not in self.found:
            parts = [self.of(each) for each in node.inputs]
            self.found[id(node)] = self._of(node, parts) if any(part[0] is not None for part in parts) else (None, node)
        return self.found[id(node)]

    def _of(self, node: Node, parts: list[Affine]) -> Affine:
        rule: Callable[..., Affine] | None = getattr(self, f"_{node.op}", None)
        if rule is None or not is_float(node.dtype):
            raise NotAffineError
        return rule(node, *parts)

    def _each(self, op: str, node: Node, first: Node | None, second: Node | None) -> Node | None:
        """The operation on two parts, of which one or both may be 0."""
        if first is None or second is None:
            other = first if second is None else second
            return self.build("neg", other) if op == "sub" and first is None and other is not None else other
        return self.build(op, first, second, dtype=node.dtype)

    def _add(self, node: Node, first: Affine, second: Affine) -> Affine:
        factor, term = (self._each(node.op, node, *pair) for pair in zip(first, second, strict=True))
        return factor, term

    _sub = _add

    def _mul(self, node: Node, first: Affine, second: Affine) -> Affine:
        if first[0] is not None and second[0] is not None:
            raise NotAffineError
        (factor, term), (_, other) = (first, second) if first[0] is not None else (second, first)
        return self._scaled(node, factor, other), self._scaled(node, term, other)

    def _div(self, node: Node, first: Affine, second: Affine) -> Affine:
        if second[0] is not None:
            raise NotAffineError
        return self._scaled(node, first[0], second[1]), self._scaled(node, first[1], second[1])

    def _scaled(self, node: Node, part: Node | None, other: Node | None) -> Node | None:
        return None if part is None or other is None else self.build(node.op, part, other, dtype=node.dtype)

    def _where(self, node: Node, condition: Affine, first: Affine, second: Affine) -> Affine:
        """One step of all, as the first is: a factor of 0 takes away what is carried, infinite or not."""
        if condition[1] is None or condition[1].op != "eq" or condition[1].inputs[0].op != "iota":
            raise NotAffineError
        zero = self.build.constant(0, node.dtype)
        factor, term = (
            self.build("where", condition[1], a or zero, b or zero, dtype=node.dtype) if a or b else None
            for a, b in zip(first, second, strict=True)
        )
        return factor, term

    def _neg(self, node: Node, part: Affine) -> Affine:
        factor, term = (None if each is None else self.build("neg", each, dtype=node.dtype) for each in part)
        return factor, term

    def _expand(self, node: Node, part: Affine) -> Affine:
        factor, term = (None if each is None else self.build.expand(each, node.shape) for each in part)
        return factor, term

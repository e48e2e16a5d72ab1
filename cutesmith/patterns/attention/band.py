"""Which keys a query can see by the mask's own arithmetic: j between i + lower and i + upper, as in causal attention.

A mask that is computed from coordinates (`j <= i`, `i - j < window`, and what is made of those by and, or, not) tells
which tiles of keys no query of a block sees, so that they are left out, and in which tiles all are seen, so that the
mask is not computed. Any other mask is only computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutesmith.patterns.graph.attributes import Constant, Iota, Scalar
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.simplification import constant_value

COMPARISONS = {"le": ("le", 0), "lt": ("le", -1), "ge": ("ge", 0), "gt": ("ge", 1)}
"""Operation → whether what it compares lies below or above the other, and by how much at least."""

OPPOSITES = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}
_CHOICES = [True, False], [False, True]
AND, OR, NOT = ({f"{kind}_{op}" for kind in ("logical", "bitwise")} for op in ("and", "or", "not"))


@dataclass(frozen=True)
class Offset:
    """A number of keys: `constant`, and where `argument` is set, `factor` (1 or -1) times that scalar argument."""

    constant: int = 0
    argument: int | None = None
    factor: int = 0


@dataclass(frozen=True)
class Band:
    """The visible keys j of a query i: i + each of `lower` <= j <= i + each of `upper`.

    `conditions` are the comparisons that say so: all of them hold inside the band.
    """

    lower: tuple[Offset, ...] = ()
    upper: tuple[Offset, ...] = ()
    conditions: tuple[tuple[Node, bool], ...] = ()


def band_of(scores: Node) -> Band:
    """The band of scores (…, queries, keys) that are -inf outside it; an empty one where nothing says so."""
    found = [bound for condition, seen in _masks(scores) for bound in _bounds(condition, seen)]
    return Band(
        tuple(offset for side, offset, _ in found if side == "ge"),
        tuple(offset for side, offset, _ in found if side == "le"),
        tuple(condition for _, _, condition in found),
    )


def seen_share(band: Band, queries: int, keys: int) -> float:
    """The part of all pairs that lie in the band, by every 64th query; ends that arguments move are not counted."""
    lower, upper = ([o.constant for o in side if o.argument is None] for side in (band.lower, band.upper))
    rows = range(0, queries, 64)
    seen = (min([keys - 1, *(i + end for end in upper)]) - max([0, *(i + end for end in lower)]) + 1 for i in rows)
    return sum(max(0, count) for count in seen) / max(1, len(rows) * keys)


def every_query_sees_a_key(band: Band, queries: int, keys: int) -> bool:
    """Whether no row of the scores is hidden whole, by ends that no argument moves."""
    if any(offset.argument is not None for offset in (*band.lower, *band.upper)):
        return False
    lower = max((offset.constant for offset in band.lower), default=-queries)
    upper = min((offset.constant for offset in band.upper), default=keys)
    return lower <= upper and upper >= 0 and queries + lower <= keys


def _masks(node: Node) -> Iterator[tuple[Node, bool]]:
    """Conditions whose value, if it is not the one beside it, makes the score -inf."""
    if node.op == "where":
        condition, first, second = node.inputs
        for side, other, seen in ((first, second, True), (second, first, False)):
            if is_minus_infinity(other):
                yield condition, seen
                yield from _masks(side)
    elif node.op == "add":
        for side in node.inputs:
            yield from _masks(side)
    elif node.op == "cast":
        yield from _masks(node.inputs[0])


def is_minus_infinity(node: Node) -> bool:
    """Whether a node is the constant -inf, in whatever type."""
    while node.op == "cast":
        (node,) = node.inputs
    return node.op == "constant" and Constant.of(node).value == float("-inf")


def _bounds(condition: Node, holds: bool) -> Iterator[tuple[str, Offset, tuple[Node, bool]]]:
    """What a condition that holds, or does not, says of j - i: its side, by how much, and the comparison itself."""
    if condition.op in NOT:
        yield from _bounds(condition.inputs[0], not holds)
    elif condition.op in (AND if holds else OR):
        for part in condition.inputs:
            yield from _bounds(part, holds)
    elif condition.op == "where" and (truths := [constant_value(side) for side in condition.inputs[1:]]) in _CHOICES:
        yield from _bounds(condition.inputs[0], holds == truths[0])  # a comparison as a matrix, such as ones and zeros
    elif condition.op in COMPARISONS:
        first, second = (_affine(side) for side in condition.inputs)
        if first is None or second is None or (difference := first.minus(second)) is None:
            return
        side, least = COMPARISONS[condition.op if holds else OPPOSITES[condition.op]]
        if (difference.row, difference.column) == (-1, 1):  # j - i + offset <= least: j <= i + least - offset
            yield side, difference.negated_offset(least), (condition, holds)
        elif (difference.row, difference.column) == (1, -1):  # i - j + offset <= least: j >= i + offset - least
            other = {"le": "ge", "ge": "le"}[side]
            yield other, difference.offset(least), (condition, holds)


@dataclass(frozen=True)
class _Affine:
    """row * i + column * j + constant + factor * argument, over integers."""

    row: int = 0
    column: int = 0
    constant: int = 0
    argument: int | None = None
    factor: int = 0

    def minus(self, other: _Affine) -> _Affine | None:
        return self.plus(other.times(-1))

    def plus(self, other: _Affine) -> _Affine | None:
        """The sum; None where two arguments take part."""
        if self.factor and other.factor and self.argument != other.argument:
            return None
        argument = self.argument if self.factor else other.argument
        factor = self.factor + other.factor
        if abs(factor) > 1:
            return None
        row, column, constant = self.row + other.row, self.column + other.column, self.constant + other.constant
        return _Affine(row, column, constant, argument if factor else None, factor)

    def times(self, number: int) -> _Affine:
        return _Affine(
            self.row * number, self.column * number, self.constant * number, self.argument, self.factor * number
        )

    def offset(self, least: int) -> Offset:
        return Offset(self.constant - least, self.argument, self.factor)

    def negated_offset(self, least: int) -> Offset:
        return Offset(least - self.constant, self.argument, -self.factor)


def _affine(node: Node) -> _Affine | None:
    """The node as a function of the coordinates of its last two dimensions; None where it is not one of integers."""
    if node.op == "iota":
        along = Iota.of(node).dim - len(node.shape)
        if node.shape[along] == 1:
            return _Affine()
        return {-1: _Affine(column=1), -2: _Affine(row=1)}.get(along)
    if node.op == "constant":
        value = Constant.of(node).value
        return _Affine(constant=int(value)) if float(value).is_integer() else None
    if node.op == "scalar" and node.dtype.startswith("int"):
        return _Affine(argument=Scalar.of(node).index, factor=1)
    if node.op == "cast" and node.dtype in ("int32", "int64"):
        return _affine(node.inputs[0])
    if node.op in ("add", "sub"):
        first, second = (_affine(side) for side in node.inputs)
        if first is None or second is None:
            return None
        return first.plus(second) if node.op == "add" else first.minus(second)
    if node.op == "neg":
        inner = _affine(node.inputs[0])
        return None if inner is None else inner.times(-1)
    return None


def bound_code(offset: Offset, names: Sequence[str]) -> str:
    """What is added to a row for one end of its band; `names` are those of the function's arguments."""
    if offset.argument is None:
        return f" + {offset.constant}" if offset.constant else ""
    sign = "-" if offset.factor < 0 else "+"
    return f" {sign} clipped({names[offset.argument]})" + (f" + {offset.constant}" if offset.constant else "")

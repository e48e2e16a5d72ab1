"""Lowerings of scans: cumulative sums, products, extremes and log-sum-exps, from either end, perhaps exclusive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutesmith.patterns.graph.attributes import Constant, Scan
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.takes import unflipped
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Rule, lowers

NEUTRAL = {"sum": 0, "prod": 1}
"""What an exclusive scan begins with."""


def _scanned(low: Lowering, operation: str, x: Node, dim: int, index: int = 0) -> Node:
    """`x`, in the arithmetic class of the result `index`, scanned along `dim`."""
    if not x.shape:
        return low.build.constant(0, "int64") if operation.startswith("arg") else x
    x = low.build.materialise(x)
    return low.build.node("scan", (x,), x.shape, low.dtypes[index], Scan(dim % len(x.shape), operation))


def _arithmetic(operation: str) -> Rule:
    return lambda low, x, dim, *, dtype=None: _scanned(low, operation, low.operand(x), dim)


def _extreme(operation: str) -> Rule:
    def extreme(low: Lowering, x: Node, dim: int) -> tuple[Node, Node]:
        numbers = low.build.cast(x, "int32") if x.dtype == "bool" else x
        places = _scanned(low, f"arg{operation}", numbers, dim, 1)
        if numbers is x or not x.shape:
            return _scanned(low, operation, x, dim), places
        scan = low.build.node("scan", (numbers,), x.shape, "int32", Scan(dim % len(x.shape), operation))
        return low.build("ne", scan, 0), places

    return extreme


lowers("cumsum")(_arithmetic("sum"))
lowers("cumprod")(_arithmetic("prod"))
lowers("logcumsumexp")(_arithmetic("logsumexp"))
lowers("cummax")(_extreme("max"))
lowers("cummin")(_extreme("min"))


def flipped_scan(low: Lowering, x: Node, dims: Sequence[int]) -> Node | None:
    """A scan that is flipped along its dimension as a scan from the other end of what is flipped; None for others."""
    if x.op != "scan" or tuple(dim % len(x.shape) for dim in dims) != (Scan.of(x).dim,):
        return None
    scan, inner = Scan.of(x), [unflipped(each, [Scan.of(x).dim]) for each in x.inputs]
    turned = [each for each in inner if each is not None]
    if len(turned) < len(inner) or scan.operation.startswith("arg") or scan.window:
        return None
    return low.build.node("scan", turned, x.shape, x.dtype, replace(scan, reverse=not scan.reverse))


def exclusive_scan(low: Lowering, pieces: Sequence[Node], dim: int) -> Node | None:
    """The neutral element before a scan, or after one from the other end, as an exclusive scan; None for others."""
    if len(pieces) != 2:
        return None
    scanned = next((piece for piece in pieces if piece.op == "scan"), None)
    if scanned is None:
        return None
    scan, first = Scan.of(scanned), pieces[pieces[0] is scanned]
    number = first.inputs[0] if first.op == "expand" else first
    fits = (
        dim % len(scanned.shape) == scan.dim
        and first.shape[scan.dim] == 1
        and (pieces[1] is scanned) != scan.reverse
        and not scan.exclusive
        and not scan.window
        and scan.operation in NEUTRAL
        and number.op == "constant"
        and Constant.of(number).value == NEUTRAL[scan.operation]
    )
    if not fits:
        return None
    return low.build.node("scan", scanned.inputs, low.shapes[0], scanned.dtype, replace(scan, exclusive=True))


def doubled_scan(low: Lowering, pieces: Sequence[Node], dim: int) -> Node | None:
    """A round of a linear recurrence that doubles the window which it looks back over; None for other pieces.

    Either the first elements and `x[s:] + x[:-s] * factor[s:]`, or, of the factor, `factor[s:] * factor[:-s]`.
    """
    if not low.build.joins_rounds or len(pieces) != 2 or id(pieces[0]) not in low.build.slices:
        return None
    (x, along, first), later = low.build.slices[id(pieces[0])], pieces[1]
    shift = pieces[0].shape[dim]
    if first or along != dim % len(x.shape) or x.shape != tuple(low.shapes[0]) or x.dtype != low.dtype:
        return None
    factor = _factor(low, later, x, along, shift)
    if factor is None:
        return None
    operation = "prod" if factor is x else "linear"
    (whole, *rest), known = _within(x, along, shift, operation)
    if operation == "linear":
        inner, is_known = _within(factor, along, shift, "prod")
        if not (known and is_known) or rest and rest[0] is not low.build.materialise(inner[0]):
            return None
        rest = list(inner)
    elif not known:
        return None
    window = 0 if 2 * shift >= x.shape[along] else 2 * shift
    inputs = [low.build.materialise(each) for each in (whole, *rest)]
    return low.build.node("scan", inputs, x.shape, x.dtype, Scan(along, operation, window=window))


def _within(x: Node, dim: int, window: int, operation: str) -> tuple[tuple[Node, ...], bool]:
    """What is scanned in x over this window, and whether it is: a window of one element is that."""
    if window == 1:
        return (x,), True
    is_known = x.op == "scan" and Scan.of(x) == Scan(dim, operation, window=window)
    return x.inputs if is_known else (x,), is_known


def _factor(low: Lowering, later: Node, x: Node, dim: int, shift: int) -> Node | None:
    """What the later elements of a round are multiplied by: x itself for `x[s:] * x[:-s]`."""
    here, before = (x, dim, shift), (x, dim, 0)
    known = low.build.slices
    if later.op == "mul":
        found = [known.get(id(each)) for each in later.inputs]
        return x if found in ([here, before], [before, here]) else None
    if later.op != "add":
        return None
    for own, product in (later.inputs, later.inputs[::-1]):
        if known.get(id(own)) != here or product.op != "mul":
            continue
        for earlier, factor in (product.inputs, product.inputs[::-1]):
            given = known.get(id(factor))
            if known.get(id(earlier)) == before and given is not None and given[1:] == (dim, shift):
                return given[0] if given[0].shape == x.shape else None
    return None

"""Lowerings of scans: cumulative sums, products, extremes and log-sum-exps, from either end, perhaps exclusive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cutesmith.patterns.graph.nodes import Constant, Node, Scan
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
        if x.dtype == "bool":
            raise low.build.unmatched("scans booleans for an extreme")
        return _scanned(low, operation, x, dim), _scanned(low, f"arg{operation}", x, dim, 1)

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
    scan, inner = Scan.of(x), unflipped(x.inputs[0], [Scan.of(x).dim])
    if inner is None or scan.operation.startswith("arg"):
        return None
    return low.build.node("scan", (inner,), x.shape, x.dtype, replace(scan, reverse=not scan.reverse))


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
        and scan.operation in NEUTRAL
        and number.op == "constant"
        and Constant.of(number).value == NEUTRAL[scan.operation]
    )
    if not fits:
        return None
    return low.build.node("scan", scanned.inputs, low.shapes[0], scanned.dtype, replace(scan, exclusive=True))

"""Lowerings of searches in sorted lines: `searchsorted` and `bucketize`."""

from __future__ import annotations

from cutesmith.patterns.graph.attributes import Search
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Operand, lowers


def search(low: Lowering, line: Node, value: Node, *, right: bool) -> Node:
    """How many elements of the last dimension of `line` lie before each value, int64; the other dimensions match."""
    build = low.build
    value = build.materialise(build.operand(value, line.dtype))
    places = [build.iota(value.shape, dim) for dim in range(len(line.shape) - 1)]
    return build.node("search", (build.stored(line), value, *places), value.shape, "int64", Search(right))


@lowers("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    low: Lowering,
    line: Node,
    value: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Node | None = None,
) -> Node:
    if sorter is not None:
        raise low.build.unmatched("searches in an order that is given")
    return search(low, line, low.operand(value, line.dtype), right=right or side == "right")


@lowers("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(low: Lowering, value: Operand, line: Node, *, out_int32: bool = False, right: bool = False) -> Node:
    return search(low, line, low.operand(value, line.dtype), right=right)

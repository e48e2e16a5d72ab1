"""Whether two graphs say the same: the check that a traced number took no part in deciding what is computed."""

from __future__ import annotations

import math
from typing import Any

from cutesmith.patterns.graph import Graph, Node


def same_graph(first: Graph, second: Graph) -> bool:
    """Equal structure, shapes, dtypes, attributes and constants (NaN equals NaN), whatever their origins."""
    if len(first.outputs) != len(second.outputs) or first.output_strides != second.output_strides:
        return False
    seen: set[tuple[int, int]] = set()
    return all(_same(a, b, seen) for a, b in zip(first.outputs, second.outputs, strict=True))


def _same(first: Node, second: Node, seen: set[tuple[int, int]]) -> bool:
    stack = [(first, second)]
    while stack:
        a, b = stack.pop()
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        alike = (a.op, a.shape, a.dtype, len(a.inputs)) == (b.op, b.shape, b.dtype, len(b.inputs))
        if not alike or not _same_attributes(a.attrs, b.attrs):
            return False
        stack.extend(zip(a.inputs, b.inputs, strict=True))
    return True


def _same_attributes(first: Any, second: Any) -> bool:
    return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in first)


def _equal(first: Any, second: Any) -> bool:
    both_nan = isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second)
    return both_nan or bool(first == second)

"""Whether two graphs say the same: the check that a traced number took no part in deciding what is computed."""

from __future__ import annotations

import math
from typing import Any

from cutesmith.patterns.graph import Graph, Node


def same_graph(first: Graph, second: Graph, *, shapes: bool = True) -> bool:
    """Equal structure, shapes, dtypes, attributes and constants (NaN equals NaN), whatever their origins.

    With `shapes=False` sizes and strides may differ, but not what the views and constants say.
    """
    if len(first.outputs) != len(second.outputs) or (shapes and first.output_strides != second.output_strides):
        return False
    seen: set[tuple[int, int]] = set()
    return all(_same(a, b, seen, shapes) for a, b in zip(first.outputs, second.outputs, strict=True))


def _same(first: Node, second: Node, seen: set[tuple[int, int]], shapes: bool) -> bool:
    stack = [(first, second)]
    while stack:
        a, b = stack.pop()
        if (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        alike = (a.op, a.dtype, len(a.inputs), len(a.shape)) == (b.op, b.dtype, len(b.inputs), len(b.shape))
        if not alike or (shapes and a.shape != b.shape) or not _same_attributes(a.attrs, b.attrs, shapes):
            return False
        stack.extend(zip(a.inputs, b.inputs, strict=True))
    return True


def _same_attributes(first: Any, second: Any, shapes: bool) -> bool:
    names = first.keys() if shapes else first.keys() - {"stride", "offset", "root"}
    return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in names)


def _equal(first: Any, second: Any) -> bool:
    both_nan = isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second)
    return both_nan or bool(first == second)

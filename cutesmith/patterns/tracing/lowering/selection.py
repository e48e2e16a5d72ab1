"""Lowerings of sorts: `sort`, `argsort` and `topk`."""

from __future__ import annotations

from typing import Any

from cutesmith.patterns.graph.attributes import Sort
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers


def _sorted(low: Lowering, x: Node, dim: int, descending: bool) -> tuple[Node, Node]:
    """The first elements, as many as the result has, and their places."""
    build = low.build
    if not x.shape:
        return x, build.constant(0, "int64")
    x = build.materialise(x)
    values = Sort(dim % len(x.shape), descending)
    places = Sort(values.dim, descending, places=True)
    return build.node("sort", (x,), low.shapes[0], x.dtype, values), build.node(
        "sort", (x,), low.shapes[0], "int64", places
    )


@lowers("sort.default")
def _sort(low: Lowering, x: Node, dim: int = -1, descending: bool = False) -> tuple[Node, Node]:
    return _sorted(low, x, dim, descending)


@lowers("sort.stable")
def _sort_stable(
    low: Lowering, x: Node, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Node, Node]:
    return _sorted(low, x, dim, descending)


@lowers("topk")
def _topk(low: Lowering, x: Node, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return _sorted(low, x, dim, largest)

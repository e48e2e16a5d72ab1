"""How the result of an attention or a product is seen: models put heads side by side, which takes no launch.

The kernel stores each row where it lies in the end, as a row is contiguous either way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutesmith.patterns.graph.attributes import Reshaping, Stored, View
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.shapes import Shape, dense_strides


@dataclass(frozen=True)
class Result:
    """A value and the views that the function returns of it; `order` are its dimensions as they lie in memory."""

    value: Node
    views: tuple[View, ...]
    order: tuple[int, ...]

    @property
    def is_reordered(self) -> bool:
        """Whether dimensions have changed places."""
        return self.order != tuple(range(len(self.order)))

    def laid_out(self, sizes: Sequence[str]) -> tuple[str, str]:
        """The codes of the sizes as they lie in memory, and of the view with the dimensions in order."""
        back = ", ".join(str(self.order.index(dim)) for dim in range(len(sizes)))
        return ", ".join(sizes[dim] for dim in self.order), f".permute({back})" if self.is_reordered else ""


def result_of(output: Node) -> Result | None:
    """What a dense output is a view of, or a copy of a view; None where a copy moves elements of a row."""
    node, views, turned = output, list[View](), None
    while node.op in ("reshape", "stored") or is_copy(node):
        if node.op == "reshape":
            views.insert(0, Reshaping.of(node).view)
        elif node.op == "stored":
            if turned:
                return None
            turned, views = node, [*Stored.of(node).views, *views]
        (node,) = node.inputs
    order = _order(node.shape, turned) if turned else tuple(range(len(node.shape)))
    return Result(node, tuple(views), order) if order else None


def last_view(product: Node, users: Mapping[int, Sequence[Node]]) -> Node:
    """The dense copy of a view of a product that is all that anything reads of it; else the product."""
    node = end = product
    while len(users[id(node)]) == 1 and (users[id(node)][0].op in ("reshape", "stored") or is_copy(users[id(node)][0])):
        (node,) = users[id(node)]
        result = result_of(node)
        end = node if node.op != "stored" and result and result.is_reordered else end
    return end


def is_copy(node: Node) -> bool:
    """Whether a node is a dense copy of what it is made of."""
    return node.op == "cast" and (node.shape, node.dtype) == (node.inputs[0].shape, node.inputs[0].dtype)


def _order(shape: Shape, turned: Node) -> tuple[int, ...] | None:
    """The dimensions of a dense value in the order in which those of a view of it have them."""
    steps, seen = dense_strides(shape), Stored.of(turned)
    order = [dim for dim, size in enumerate(shape) if size == 1]
    for size, step in _runs(turned.shape, seen.stride):
        dims = [d for d, n in enumerate(shape) if n != 1 and step <= steps[d] < step * size]
        if math.prod(shape[d] for d in dims) != size:
            return None
        order += dims
    is_whole = not seen.offset and sorted(order) == list(range(len(shape)))
    return tuple(order) if is_whole and order[-1:] == [len(shape) - 1] else None


def _runs(shape: Shape, strides: Shape) -> list[tuple[int, int]]:
    """The sizes and steps of a view, of neighbouring dimensions as one where one dimension was split into them."""
    runs = list[tuple[int, int]]()
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        whole = runs.pop()[0] if runs and runs[-1][1] == step * size else 1
        runs.append((whole * size, step))
    return runs

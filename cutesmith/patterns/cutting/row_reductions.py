"""Products whose kernel may reduce the rows of their result, too: a softmax over experts, a norm of a head."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cutesmith.patterns.contraction.row_values import MOST_COLUMNS, reduces_rows
from cutesmith.patterns.graph.attributes import Contraction
from cutesmith.patterns.graph.nodes import Graph, Node, with_some

OTHERS = frozenset({"windows", "grouped", "computed"})
"""Factors whose products have tiles of other rows."""


def with_row_reductions(graph: Graph) -> Graph:
    """The graph whose products of few columns are reduced where they are summed up; itself where it has none."""
    reduced = _reduced(graph.nodes())
    mark = lambda node: replace(node, attrs=replace(Contraction.of(node), rows=True))  # noqa: E731
    return with_some(graph, reduced, mark) if reduced else graph


def _reduced(nodes: Iterable[Node]) -> set[int]:
    """The ids of products that a reduction along their rows is made of, with pointwise work of their shape between."""
    found: set[int] = set()
    made_of: dict[int, frozenset[int]] = {}
    for node in nodes:
        before = [made_of.get(id(child), frozenset()) for child in node.inputs if child.shape == node.shape]
        if node.op == "contract" and _may_reduce(node):
            made_of[id(node)] = frozenset({id(node)})
        elif node.is_pointwise:
            made_of[id(node)] = frozenset[int]().union(*before)
        elif node.is_reduction and reduces_rows(node, node.inputs[0].shape):
            found |= made_of.get(id(node.inputs[0]), frozenset())
    return found


def _may_reduce(product: Node) -> bool:
    is_marked = Contraction.of(product).rows
    return not is_marked and 1 < product.shape[-1] <= MOST_COLUMNS and not {side.op for side in product.inputs} & OTHERS

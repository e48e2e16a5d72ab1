"""Products whose kernel may reduce the rows of their result, too: a softmax over experts, a norm of a head."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cutesmith.patterns.contraction.row_values import MOST_COLUMNS, reduces_rows
from cutesmith.patterns.graph.attributes import Contraction, Gather, Reduction
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import COMPUTE_TYPE
from cutesmith.patterns.graph.nodes import Graph, Node, with_some

OTHERS = frozenset({"windows", "grouped", "computed"})
"""Factors whose products have tiles of other rows."""


def with_row_reductions(graph: Graph) -> Graph:
    """The graph whose products of few columns are reduced where they are summed up; itself where it has none."""
    reduced, build = _reduced(graph.nodes()), GraphBuilder()

    def change(node: Node) -> Node:
        if node.op == "gather":
            return _as_sum(build, node)
        return replace(node, attrs=replace(Contraction.of(node), rows=True))

    return with_some(graph, reduced, change) if reduced else graph


def _reduced(nodes: Iterable[Node]) -> set[int]:
    """The ids of products that a reduction along their rows is made of, with pointwise work of their shape between.

    Beside them those of what takes an element of such a row.
    """
    found: set[int] = set()
    made_of: dict[int, frozenset[int]] = {}
    for node in nodes:
        before = [made_of.get(id(child), frozenset()) for child in node.inputs if child.shape == node.shape]
        if node.op == "contract" and _may_reduce(node):
            made_of[id(node)] = frozenset({id(node)})
        elif node.is_pointwise:
            made_of[id(node)] = frozenset[int]().union(*before)
        elif node.op == "gather" and _takes_one_of_a_row(node) and made_of.get(id(node.inputs[0])):
            found |= {id(node), *made_of[id(node.inputs[0])]}
        elif node.is_reduction and reduces_rows(node, node.inputs[0].shape):
            found |= made_of.get(id(node.inputs[0]), frozenset())
    return found


def _may_reduce(product: Node) -> bool:
    is_marked = Contraction.of(product).rows
    return not is_marked and 1 < product.shape[-1] <= MOST_COLUMNS and not {side.op for side in product.inputs} & OTHERS


def _takes_one_of_a_row(node: Node) -> bool:
    row = node.inputs[0].shape
    return (
        node.shape == (*row[:-1], 1) and Gather.of(node).dim == len(row) - 1 and COMPUTE_TYPE[node.dtype] == "Float32"
    )


def _as_sum(build: GraphBuilder, node: Node) -> Node:
    """The element of a row that an index names: the sum of that one and of zeros."""
    row, index = node.inputs
    build.origin = node.origin
    is_taken = build("eq", build.iota(row.shape, len(row.shape) - 1), index)
    others = build.node("where", (is_taken, row, build.constant(0.0, "float32")), row.shape, row.dtype)
    return build.node("sum", (others,), node.shape, node.dtype, Reduction((len(row.shape) - 1,)))

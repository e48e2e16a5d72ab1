"""Pairs of products that attention takes, with what lies in memory before it."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention.plan import match as attention
from cutesmith.patterns.chains.chain import returning, standing_alone
from cutesmith.patterns.cutting.regions import base_of
from cutesmith.patterns.cutting.stored_values import nodes_between, reading
from cutesmith.patterns.graph.dtypes import HALVES
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, in_memory, users_of
from cutesmith.patterns.graph.results import last_view


@dataclass(frozen=True)
class Attended:
    """Two products that attention takes together with all that lies between them, and what it reads of other values."""

    first: Node
    last: Node
    end: Node
    """The last product, or the view of it that lies dense in memory."""
    operands: tuple[Node, ...]

    @property
    def inside(self) -> list[Node]:
        """Values that nothing has to store for it, though they are seen through views."""
        return [self.last] if self.end is not self.last else []


def attended_products(graph: Graph) -> list[Attended]:
    """Each two products that are one attention, where other launches store what its operands are computed of."""
    found, order, users = list[Attended](), list(graph.nodes()), users_of(graph)
    products = [node for node in order if node.op == "contract"]
    factors = [each for product in products for side in product.inputs for each in in_memory(_unwidened(side))]
    read = [base_of(node) for node in order if node.op == "stored"] + list(map(base_of, factors))
    known = {id(node): node for node in read if node.op not in LEAVES}
    for last in products:
        weights = _unwidened(last.inputs[0])
        given = {key: node for key, node in known.items() if node is not last and node is not base_of(weights)}
        first = [node for node in nodes_between(order, [last], given) if node.op == "contract" and node is not last]
        for end in dict.fromkeys([last_view(last, users), last]) if len(first) == 1 else ():
            piece, operands = reading(returning(graph, [end]), given)
            if _is_attention(standing_alone(piece)[0]):
                found.append(Attended(first[0], last, end, tuple(operands)))
                break
    return found


def _unwidened(factor: Node) -> Node:
    """A factor before casts to wider types, which lose nothing: attention reads its operands as they were."""
    while factor.op == "cast" and factor.dtype == "float32" and factor.inputs[0].dtype in HALVES:
        (factor,) = factor.inputs
    return factor


def _is_attention(graph: Graph) -> bool:
    try:
        attention(graph)
    except UnmatchedError:
        return False
    return True

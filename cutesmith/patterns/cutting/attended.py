"""Pairs of products that attention takes, with what lies in memory before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.attention.analysis import product_of
from cutesmith.patterns.attention.plan import match as attention
from cutesmith.patterns.attention.softmax import logsumexp_of, pointwise_cone
from cutesmith.patterns.chains.chain import returning, standing_alone
from cutesmith.patterns.cutting.regions import base_of
from cutesmith.patterns.cutting.stored_values import nodes_between, reading
from cutesmith.patterns.graph.dtypes import HALVES
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, in_memory, places_of, users_of
from cutesmith.patterns.graph.results import last_view


@dataclass(frozen=True)
class Attended:
    """Two products that attention takes together with all that lies between them, and what it reads of other values."""

    first: Node
    last: Node
    end: Node
    """The last product, or the view of it that lies dense in memory."""
    operands: tuple[Node, ...]
    beside: tuple[Node, ...] = ()
    """The log-sum-exp of the scores, where something else reads it."""

    @property
    def inside(self) -> list[Node]:
        """Values that nothing has to store for it, though they are seen through views."""
        return [self.last] if self.end is not self.last else []


def attended_products(graph: Graph) -> list[Attended]:
    """Each two products that are one attention, where other launches store what its operands are computed of."""
    order, users = list(graph.nodes()), users_of(graph)
    places, found = places_of(order), list(_with_gradients(order))
    products = [node for node in order if node.op == "contract"]
    factors = [each for product in products for side in product.inputs for each in in_memory(_unwidened(side))]
    read = [base_of(node) for node in order if node.op == "stored"] + list(map(base_of, factors))
    known = {id(node): node for node in read if node.op not in LEAVES and logsumexp_of(node) is None}
    for last in products:
        weights = _unwidened(last.inputs[0])
        given = {key: node for key, node in known.items() if node is not last and node is not base_of(weights)}
        first = [node for node in nodes_between(places, [last], given) if node.op == "contract" and node is not last]
        for end in dict.fromkeys([last_view(last, users), last]) if len(first) == 1 else ():
            piece, operands = reading(returning(graph, [end]), given)
            if _is_attention(standing_alone(piece)[0]):
                attended = Attended(first[0], last, end, tuple(operands))
                found.append(_with_logsumexp(graph, attended, users, given))
                break
    return found


def _with_gradients(order: Sequence[Node]) -> Iterator[Attended]:
    """The scores and the gradient of the weights of each attention, and what gradients of its factors are made of."""
    groups: dict[tuple[int, ...], list[Node]] = {}
    for node in order:
        if node.op == "attention_gradient":
            groups.setdefault(tuple(map(id, node.inputs)), []).append(node)
    for end, *beside in groups.values():
        scores, of_weights, logsumexp, result = end.inputs
        product = product_of(scores)
        if product is not None:
            factors = [base_of(factor) for factor in (*product.inputs, *of_weights.inputs)]
            read = [*(factor for factor in factors if factor.op not in LEAVES), base_of(result), logsumexp]
            yield Attended(product, of_weights, end, tuple(read), tuple(beside))


def _with_logsumexp(
    graph: Graph, attended: Attended, users: Mapping[int, Sequence[Node]], given: dict[int, Node]
) -> Attended:
    """The same with the log-sum-exp of its scores beside, where others read it and attention takes both."""
    order, read = list(graph.nodes()), {id(base_of(output)) for output in graph.outputs}
    inside = set(map(id, nodes_between(places_of(order), [attended.end], given)))
    for node in reversed(order):
        is_read = id(node) in read or any(id(user) not in inside for user in users[id(node)])
        scores = logsumexp_of(node) if is_read and node.op in ("where", "add") else None
        if scores and any(each is attended.first for each in pointwise_cone(scores)):
            piece, _ = reading(returning(graph, [attended.end, node]), given)
            return replace(attended, beside=(node,)) if _is_attention(standing_alone(piece)[0]) else attended
    return attended


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

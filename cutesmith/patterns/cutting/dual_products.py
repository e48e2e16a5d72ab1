"""Pairs of products with the same left factor that one kernel sums up: a gate and what it is multiplied by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cutesmith.patterns.contraction.analysis import have_same_ends, is_plain
from cutesmith.patterns.graph.attributes import Contraction
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_some


def with_dual_products(graph: Graph) -> Graph:
    """The graph whose pairs of products are summed up in one kernel each; itself where it has none."""
    paired = {id(product) for pair in pairs_of(graph.nodes()) for product in pair}
    mark = lambda node: replace(node, attrs=replace(Contraction.of(node), dual=True))  # noqa: E731
    return with_some(graph, paired, mark) if paired else graph


def pairs_of(nodes: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Products of 16-bit matrices that share the left one and that a pointwise value is made of; each in one pair."""
    pairs: list[tuple[Node, Node]] = []
    waiting: dict[int, Node] = {}
    before: dict[int, frozenset[int]] = {}  # the products that pointwise work of their shape makes a node of
    for node in nodes:
        if node.op == "contract" and is_plain(node):
            waiting[id(node)] = node
            before[id(node)] = frozenset({id(node)})
        elif node.is_pointwise:
            whole = (id(child) for child in node.inputs if child.shape == node.shape)
            before[id(node)] = frozenset().union(*(before.get(key, frozenset()) for key in whole))
            met = [product for key, product in waiting.items() if key in before[id(node)]]
            pair = next(((a, b) for at, a in enumerate(met) for b in met[at + 1 :] if _can_pair(a, b)), None)
            if pair:
                pairs.append(pair)
                for product in pair:
                    del waiting[id(product)]
    return pairs


def _can_pair(first: Node, second: Node) -> bool:
    (left, right), (other_left, other_right) = first.inputs, second.inputs
    same = left is other_left and right.shape == other_right.shape and right.dtype == other_right.dtype
    same = same and not any(side.op == "chosen" for side in (left, right, other_right))
    same = same and have_same_ends(first, second)
    return same and first.attrs == second.attrs and not any(node is first for node in nodes_of((other_right,)))

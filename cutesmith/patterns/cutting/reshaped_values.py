"""Functions of one stored value that are computed behind its reshape, as the norms of heads of a projection are.

A norm of each head begins before the heads are told apart: what is cast and squared there would be stored twice in
float32. Behind the reshape a launch reads the projection itself, in the shape of its heads.
"""

from __future__ import annotations

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes


def with_functions_behind_reshapes(graph: Graph) -> Graph:
    """The graph whose reshapes are of values that no pointwise function of one value is left before; or itself."""
    build, moved = GraphBuilder(), list[Node]()

    def change(node: Node) -> Node:
        if node.op != "reshape" or _only_operand(node.inputs[0]) is None:
            return node
        moved.append(_behind(build, node.inputs[0], node))
        return moved[-1]

    rewritten = with_nodes(graph, change)
    return rewritten if moved else graph


def _behind(build: GraphBuilder, value: Node, reshape: Node) -> Node:
    """A value in the shape of a reshape."""
    operand = _only_operand(value)
    if operand is None:
        return build.node("reshape", (value,), reshape.shape, value.dtype, reshape.attrs)
    seen = _behind(build, operand, reshape)
    return build.with_inputs(value, [seen if child is operand else child for child in value.inputs], reshape.shape)


def _only_operand(value: Node) -> Node | None:
    """What a pointwise value is made of beside numbers, where that is one value of its shape, and no leaf."""
    operands = {id(child): child for child in value.inputs if child.shape}
    if not value.is_pointwise or len(operands) != 1:
        return None
    (operand,) = operands.values()
    return operand if operand.inputs and operand.shape == value.shape else None

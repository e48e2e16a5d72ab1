"""Pointwise work on positions as work on a product's elements, before these are put in order."""

from __future__ import annotations

from dataclasses import replace

from cutesmith.patterns.cutting.regions import is_pointwise_on_arguments
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.window_attributes import DepthToSpace


def before_order(build: GraphBuilder, node: Node) -> Node:
    """A pointwise value of elements in order as the order of a value of elements, where operands have no position.

    A last reshape stays; any other node is returned as it is.
    """
    inner = node.inputs[0] if node.op == "reshape" else node
    placed = [child for child in inner.inputs if child.op == "depth_to_space"]
    others = [child for child in inner.inputs if child.op != "depth_to_space"]
    if not inner.is_pointwise or not placed or any(child.attrs != placed[0].attrs for child in placed):
        return node
    order, shape = DepthToSpace.of(placed[0]), placed[0].inputs[0].shape
    rank = order.rank
    if inner.shape != placed[0].shape or not all(_has_no_position(child, rank) for child in others):
        return node
    inputs = [
        child.inputs[0] if child.op == "depth_to_space" else _of_elements(build, child, order) for child in inner.inputs
    ]
    element = build.with_inputs(inner, inputs, shape)
    return build.reshape(replace(placed[0], inputs=(element,), dtype=inner.dtype, origin=inner.origin), node.shape)


def _has_no_position(node: Node, rank: int) -> bool:
    return all(size == 1 for size in node.shape[-rank:]) and is_pointwise_on_arguments(node)


def _of_elements(build: GraphBuilder, node: Node, order: DepthToSpace) -> Node:
    """An operand (…, outputs, 1, …) as (…, outputs * phases, 1), which is stored where it is not the same for all."""
    before = node.shape[: -order.rank]
    if all(size == 1 for size in before):
        return build.reshape(node, ()) if node.shape else node
    if before[-1] == 1:
        return build.reshape(node, (*before, 1))
    wide = build.node("cast", (build.reshape(node, (*before, 1)),), (*before, order.phases), node.dtype)
    return build.reshape(build.stored(wide), (*before[:-1], before[-1] * order.phases, 1))

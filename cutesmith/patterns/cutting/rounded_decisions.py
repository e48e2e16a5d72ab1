"""Values that decide something, rounded as PyTorch rounds them.

A kernel computes values of 16 bits in float32 and rounds what it stores. That is closer to the exact result, but for
steps: where one launch stores a quotient's dividend and another computes the divisor again, `x // x` is 0 or 1. So what
a comparison, a rounding to whole numbers or the place of an extreme reads is rounded in each launch, and so is what
that is made of.

ptxas fuses a product of float32 with the sums that read it. Where `p = a * b` is taken from sums of itself, as in
`(p.cumsum(0) - p).sign()`, the first is not 0 then but what rounding left of a * b: such products are rounded, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cutesmith.patterns.cutting.pieces import Piece
from cutesmith.patterns.cutting.stored_values import nodes_between
from cutesmith.patterns.graph.dtypes import HALVES, is_float
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_some
from cutesmith.patterns.graph.operations import POINTWISE, Kind
from cutesmith.patterns.graph.simplification import constant_value

STEPS = frozenset({"floor_div", "trunc_div", "fmod", "remainder", "argmax", "argmin"})
"""Operations that have steps, beside comparisons, roundings and conversions to integers."""

CONTINUOUS = frozenset({"softplus", "smooth_l1_loss", "huber_loss"})
"""Functions of PyTorch that compare numbers where both of their branches have one value."""

NO_STEP = (0, math.inf, -math.inf)
"""Numbers that a value is on the same side of when it is rounded, but for the last of its exponents."""

EXACT = frozenset({"abs", "neg", "minimum", "maximum", "where", "max", "min"})
"""Operations that make no digits: of rounded values their results are rounded."""


def with_rounded_decisions(graph: Graph) -> Graph:
    """The graph in which what steps are decided by has the digits of its type; itself where that is stored anyway."""
    kept = _within_operations(graph)
    made = (part for node in graph.nodes() for each in _decisive(node) for part in _made_of(each))
    ids = {id(part) for part in made if is_unrounded(part) and id(part) not in kept}
    steps = (each for node in graph.nodes() if _has_steps(node) for each in node.inputs)
    parts = {id(part): part for each in steps for part in _made_of(each)}
    return with_rounded(graph, ids.union(id(found) for part in parts.values() for found in _taken_from_its_sums(part)))


def _within_operations(graph: Graph) -> set[int]:
    """The ids of values that PyTorch never rounds: of steps within one of its operations, such as `logaddexp`.

    What the last step chooses among, if that makes no digits, has those of the result.
    """
    within, stored = set[int](), set(map(id, graph.outputs))
    for node in reversed(list(graph.nodes())):
        is_last = id(node) in stored or id(node) not in within
        for child in node.inputs:
            is_step = _are_of_one_call(child, node)
            (within if is_step and not (is_last and node.op in EXACT) else stored).add(id(child))
    return within - stored


def with_rounded(graph: Graph, ids: set[int]) -> Graph:
    """The graph in which the values of these ids have the digits of their types for all who read them."""
    return with_some(graph, ids, rounded) if ids else graph


def computed_twice(places: Mapping[int, int], pieces: Sequence[Piece], read: Mapping[int, Node]) -> set[int]:
    """The ids of values of 16 bits that one launch computes with more digits than another one reads of them."""
    stored = {_function_of(node): piece for piece in pieces for node in piece.outputs if id(node) in read}
    found = set[int]()
    for piece in pieces:
        given = {key: node for key, node in read.items() if key in piece.inputs}
        for node in nodes_between(places, piece.outputs, given):
            if is_unrounded(node) and stored.get(_function_of(node), piece) is not piece:
                found.add(id(node))
    return found


def _function_of(node: Node) -> tuple[object, ...]:
    """What a value is in whichever shape."""
    return node.op, *map(id, node.inputs), node.dtype, node.attrs


def rounded(node: Node) -> Node:
    """The value, computed in float32 as always, with the digits of its type."""
    if node.dtype not in HALVES:
        return replace(node, op="rounded_mul")
    wide = replace(node, dtype="float32")
    return Node("cast", (wide,), node.shape, node.dtype, origin=node.origin, sizes=node.sizes)


def is_unrounded(node: Node) -> bool:
    """Whether a value of 16 bits has the digits of float32 where it is computed."""
    if node.dtype not in HALVES or node.op == "cast" or not (node.is_pointwise or node.is_reduction):
        return False
    wide = any(each.dtype == "float32" and each.op != "constant" for each in node.inputs)
    return node.op not in EXACT or wide


def _decisive(node: Node) -> tuple[Node, ...]:
    """The inputs of a node on both sides of whose steps values lie."""
    kind = POINTWISE[node.op].kind if node.is_pointwise else None
    if kind is Kind.COMPARISON:
        is_same = any(constant_value(each) in NO_STEP for each in node.inputs)
        return () if is_same or node.origin.operation in CONTINUOUS else node.inputs
    to_integer = kind is Kind.CONVERSION and not is_float(node.dtype) and node.dtype != "bool"
    return node.inputs if to_integer or kind is Kind.ROUNDING or node.op in STEPS else ()


def _has_steps(node: Node) -> bool:
    """Whether a difference of equals decides what the node is."""
    kind = POINTWISE[node.op].kind if node.is_pointwise else None
    return kind is Kind.COMPARISON or node.op == "sign" or _decisive(node) != ()


def _taken_from_its_sums(node: Node) -> Iterator[Node]:
    """Products that are added to values of many of their own elements, or taken away, whole or in part; and those."""
    for at, product in enumerate(node.inputs if node.op in ("add", "sub") else ()):
        others = nodes_of((node.inputs[1 - at],)) if product.op == "mul" and is_float(product.dtype) else ()
        summed = (child for each in others if each.is_reduction or each.op == "scan" for child in each.inputs)
        own = [child for child in summed if child.op == "mul" and _are_of_one_call(child, product)]
        yield from [product, *own] if own else []


def _are_of_one_call(node: Node, other: Node) -> bool:
    """Whether two values are steps, or parts of steps, of one call of a pointwise operation."""
    return node.origin.call == other.origin.call != 0


def _made_of(node: Node) -> Iterator[Node]:
    """The values that a value is made of element by element, it itself among them."""
    seen, stack = set[int](), [node]
    while stack:
        each = stack.pop()
        if id(each) in seen or not is_float(each.dtype):
            continue
        seen.add(id(each))
        yield each
        if each.is_pointwise or each.op in ("reshape", "max", "min"):
            stack.extend(each.inputs)

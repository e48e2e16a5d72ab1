"""The pattern of totals: a number or a few for a whole tensor, such as the mean of a loss, in two launches.

The first launch is a row kernel whose outputs are one value a row; where all elements are reduced it reduces each row.
The second reduces those values. Without the first, a single thread block would read the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import (
    Chain,
    ChainPlan,
    Launch,
    SinglePlan,
    chain_of,
    passed_on,
    returning,
    standing_alone,
)
from cutesmith.patterns.chains.parted import FEW_ROWS, with_parts
from cutesmith.patterns.columns.plan import match as columns
from cutesmith.patterns.graph.attributes import Gather, Input, Reduction, View
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import LEAVES, Graph, Node, nodes_of, with_values
from cutesmith.patterns.graph.shapes import Shape, without_ones
from cutesmith.patterns.rows.plan import match as rows

SPLIT = frozenset({"sum", "mean", "prod", "max", "min", "any", "all"})
"""Reductions of everything that are the same reduction of each row's: rows are equally long, so a mean is too."""

WORTHWHILE = 1 << 16
"""Fewer elements one block reads in about the time of a launch (an estimate: 64 a thread), so one launch is left."""

LONG_TOTAL = 1 << 18
"""Elements: a block alone reads so many floats in 18 us, the time of a few launches (58 GB/s, on an H200)."""

ROW_VALUES, TOTAL = "row_values", "total"


def match(graph: Graph) -> ChainPlan:
    """A plan for a graph of totals, or UnmatchedError when it has none, or one block reads its tensors fast enough."""
    parts = _in_parts(graph)
    try:
        launches = _in_two(parts, _row_value)
    except UnmatchedError:  # each row is reduced along another dimension than the last
        launches = _in_two(parts, _value)
    return chain_of(replace(graph, steps=parts.steps), launches, "totals")


def _in_two(graph: Graph, value: Callable[[GraphBuilder, Node, Shape], Node]) -> Sequence[Launch]:
    """The launches of what each total is made of, which `value` says, and of the totals of that."""
    totals, build = _totals(graph), GraphBuilder()
    shape = max((total.inputs[0].shape for total in totals), key=len)
    first = returning(graph, [value(build, total, shape) for total in totals])
    second = _of_row_values(graph, totals, first)
    second = replace(second, returns_tuple=len(second.outputs) > 1)
    chain = Chain(graph)
    for name, part, matcher in ((ROW_VALUES, first, reductions), (TOTAL, second, _of_values)):
        alone, sources = standing_alone(part)
        chain.add(name, matcher(alone), sources)
    return chain.launches


def _in_parts(graph: Graph) -> Graph:
    """The graph with one long dimension in parts, where the others are too short to keep a GPU busy."""
    shape = max((node.inputs[0].shape for node in _totals(graph)), key=math.prod)
    long = max(range(len(shape)), key=shape.__getitem__)
    if math.prod(shape[:-1]) // (1 if shape[-1] > 1 else shape[long]) > FEW_ROWS or math.prod(shape) < LONG_TOTAL:
        return graph
    try:
        return with_parts(graph, long - len(shape))
    except UnmatchedError:
        return graph


def _of_values(graph: Graph) -> SinglePlan | ChainPlan:
    """What the totals of rows' values come to: of very many such in two launches again."""
    try:
        return match(graph)
    except UnmatchedError:
        return reductions(graph)


def reductions(graph: Graph) -> SinglePlan:
    """Columns where the rows lie side by side, as the pixels of a loss over channels do; else rows."""
    try:
        return columns(graph)
    except UnmatchedError:
        return rows(graph)


def _totals(graph: Graph) -> list[Node]:
    """The reductions over everything; no output may read a tensor otherwise, no total another."""
    totals = [node for node in graph.nodes() if _is_total(node)]
    below = list(nodes_of(tuple(node.inputs[0] for node in totals)))
    largest = max((math.prod(node.inputs[0].shape) for node in totals), default=0)
    if any(map(_is_total, below)):
        raise UnmatchedError("a total of what another total is part of", operation="")
    if largest < WORTHWHILE and not any(node.is_reduction or node.op == "gather" for node in below):
        raise UnmatchedError("no total of a large tensor, nor of values of rows", operation="")
    for node in _cut(graph, totals).nodes():
        if math.prod(node.shape) != 1 or node.op in ("iota", "gather") or node.is_reduction:
            raise UnmatchedError(f"{node.where} is used beside a total", operation=node.op)
    return totals


def _is_total(node: Node) -> bool:
    """Whether a reduction is over all rows: over every dimension but perhaps one that is reduced already."""
    if node.op not in SPLIT or not node.inputs[0].shape:
        return False
    (x,) = node.inputs
    last = len(x.shape) - 1
    missing = set(range(last + 1)) - set(Reduction.of(node).dims)
    if len(missing) == 1 and last > 0:
        (dim,) = missing
        return x.shape[dim] == 1 and (dim == last or _is_reduced(x, dim - len(x.shape)))
    return not missing


def _is_reduced(node: Node, dim: int) -> bool:
    """Whether a dimension, counted from the end, is 1 for all sizes, as a reduction along it leaves it."""
    at = len(node.shape) + dim
    if at < 0 or node.is_reduction and at in Reduction.of(node).dims:
        return True
    if node.op == "input":
        return Input.of(node).views[-1:] == (View(f"{{0}}.unsqueeze({at})"),)
    if node.op == "gather":
        return Gather.of(node).dim == at
    return node.is_pointwise and all(_is_reduced(each, dim) for each in node.inputs)


def _cut(graph: Graph, totals: Sequence[Node]) -> Graph:
    """What the outputs are made of once the totals are known; those are leaves."""
    return with_values(graph, {id(node): replace(node, op=TOTAL, inputs=()) for node in totals})


def _value(build: GraphBuilder, total: Node, shape: Shape) -> Node:
    """What a total is of, not rounded to 16 bits, in the shape that others have but for ones."""
    (x,) = total.inputs
    build.origin = total.origin
    seen = build.reshape(x, shape) if without_ones(x.shape) == without_ones(shape) else x
    return build.retype(seen, compute_dtype(x.dtype))


def _row_value(build: GraphBuilder, total: Node, _: Shape) -> Node:
    """What is known of each row before any total, of shape (rows, 1), not rounded to 16 bits."""
    (x,) = total.inputs
    build.origin = total.origin
    if len(x.shape) == 1:  # one value a row, as a target of class indices
        x = build.reshape(x, (*x.shape, 1))
    last = max((dim for dim, size in enumerate(x.shape) if size > 1), default=0)
    if x.shape[-1] == 1 and (math.prod(x.shape) < LONG_TOTAL or not _is_plain(x)):
        return build.retype(x, compute_dtype(x.dtype))
    shape = (*x.shape[:last], 1, *x.shape[last + 1 :])
    return build.node(total.op, (x,), shape, compute_dtype(total.dtype), Reduction((last,)))


def _is_plain(node: Node) -> bool:
    return all(each.is_pointwise or each.op in LEAVES for each in nodes_of((node,)))


def _of_row_values(graph: Graph, totals: Sequence[Node], first: Graph) -> Graph:
    """The totals of the first graph's outputs, which are arguments after the original ones, and what follows."""
    build = GraphBuilder()
    given, parts = passed_on(graph, first.outputs, "part")
    return with_values(given, {id(t): _ended(build, t, part) for t, part in zip(totals, parts, strict=True)})


def _ended(build: GraphBuilder, total: Node, part: Node) -> Node:
    """The total of the rows' values in `part`, in the shape that its users expect."""
    whole = build.reduce(total.op, part, range(len(part.shape)), total.dtype)
    return build.reshape(whole, total.shape)

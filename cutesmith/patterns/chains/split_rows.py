"""The pattern of few long rows, such as a layer norm over images or x / norm(x): reductions in launches of their own.

A row kernel gives a row to one thread block: sixteen rows keep sixteen of 132 SMs busy, and each of their threads adds
up millions of numbers in float32. Here the outer ones of the reduced dimensions become rows too: one launch reduces the
parts, one combines what they came to, and the outputs are elementwise in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan, Launch, chain_of, part_of_chain, passed_on, returning
from cutesmith.patterns.chains.parted import FEW_ROWS, sizes_of, with_parts
from cutesmith.patterns.chains.totals import SPLIT, reductions
from cutesmith.patterns.elementwise.plan import match as elementwise
from cutesmith.patterns.graph.attributes import Reduction, Sized
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes, with_values
from cutesmith.patterns.graph.size_laws import Place, SizeLaw
from cutesmith.patterns.rows.analysis import RowsAnalysis, analyse
from cutesmith.patterns.rows.variances import Degrees

Dims = tuple[int, ...]

LONG_ROW = 1 << 18
"""Elements: a block moves so many floats in 18 us, the time of a few launches.

Measured on an H200: 58 GB/s a block, a layer norm of 16 rows of 4 million, read twice and written in 863 us.
"""

LOWEST = -3.0e38
"""What takes part in an exponential at least: a part that is -inf as a whole has 0 of the sum, not NaN."""

EXTREMES = {"argmax": "max", "argmin": "min"}
"""Places, and the reductions that find the values there."""

LAST_PLACE = 2**63 - 1
"""What no element has."""

ENOUGH_PARTS = 512
"""Four blocks for each of 132 SMs, about."""


def match(graph: Graph) -> ChainPlan:
    """A plan for a graph of few long rows that can be split, or UnmatchedError."""
    graph = _in_parts(graph)
    left, launches = _with_divisors(graph), list[Launch]()
    while any(node.is_reduction for node in left.nodes()):
        left, added = _after_a_round(left, len(launches) // 2 + 1)
        launches += added
    left = replace(left, returns_tuple=len(left.outputs) > 1)
    return chain_of(graph, (*launches, part_of_chain("apply", left, elementwise)), "split_rows")


def _in_parts(graph: Graph) -> Graph:
    """The graph with the last of the reduced dimensions in parts, where no outer one is long enough to be split."""
    analysis = analyse(graph)
    if analysis.rows > FEW_ROWS or analysis.columns < LONG_ROW:
        raise UnmatchedError("the rows are many or short", operation="")
    try:
        _outer_and_inner(analysis)
    except UnmatchedError:
        return with_parts(graph, analysis.reduced[-1] - analysis.rank)
    return graph


def _with_divisors(graph: Graph) -> Graph:
    """Variances as sums over a number that follows the sizes: later launches do not know how long the rows were."""
    analysis = analyse(graph)
    if _whole(analysis, ()) is None:  # the sizes that follow are known as they were traced
        analysis.graph = graph = replace(graph, fixed_shapes=True)
    build = GraphBuilder()
    lowered = replace(graph, outputs=analysis.outputs)
    return with_nodes(lowered, lambda node: _divided(build, analysis, node) if node.op == "degrees" else node)


def _divided(build: GraphBuilder, analysis: RowsAnalysis, node: Node) -> Node:
    """The sum of squares divided by how many degrees of freedom it has, as PyTorch does: at least none."""
    count = _size(build, analysis, analysis.reduced, offset=-Degrees.of(node).correction)
    return build("div", node.inputs[0], build("maximum", count, 0.0), dtype=node.dtype)


def _size(
    build: GraphBuilder, analysis: RowsAnalysis, dims: Sequence[int], offset: float = 0.0, dtype: str = "float32"
) -> Node:
    """The number of elements in `dims` of the rows and columns, plus `offset`: for whatever sizes, or those traced."""
    if analysis.graph.fixed_shapes:
        return build.constant(math.prod(analysis.shape[dim] for dim in dims) + offset, dtype)
    whole = _whole(analysis, dims)
    if whole is None:
        raise UnmatchedError("no argument has the shape of what is reduced", operation="")
    factor, places = whole
    law = SizeLaw(offset, float(factor) if dtype == "float32" else factor, places, 1.0)
    value = law.value([argument.sizes for argument in analysis.graph.arguments])
    return build.node("sized", (), (), dtype, Sized(law, value))


def _whole(analysis: RowsAnalysis, dims: Sequence[int]) -> tuple[Fraction, tuple[Place, ...]] | None:
    """The product of sizes of an argument, as it is or in parts, that has the shape of what is reduced."""
    uses = (use.node for use in analysis.uses if use.node.shape == analysis.shape)
    return next(filter(None, (sizes_of(node, dims) for node in uses)), None)


def _after_a_round(graph: Graph, number: int) -> tuple[Graph, list[Launch]]:
    """The graph once its first round of reductions is known, and the two launches that find it out."""
    split = _Split(analyse(graph))
    parts = returning(graph, split.parts())
    suffix = f"_{number}" if number > 1 else ""
    given, inputs = passed_on(graph, parts.outputs, f"part{suffix}")
    wholes = returning(given, split.wholes(dict(zip(map(id, parts.outputs), inputs, strict=True))))
    known, values = passed_on(given, wholes.outputs, f"whole{suffix}")
    found = dict(zip(map(id, split.reductions), values, strict=True))
    names = f"parts{suffix}", f"wholes{suffix}"
    launches = [part_of_chain(name, part, reductions) for name, part in zip(names, (parts, wholes), strict=True)]
    return with_values(known, found), launches


class _Split:
    """The first round of reductions of a graph, in two: over the inner of their dimensions, then over the outer."""

    def __init__(self, analysis: RowsAnalysis) -> None:
        self.analysis, self.build = analysis, GraphBuilder()
        self.reductions = analysis.reductions[0]
        self.outer, self.inner = _outer_and_inner(analysis)

    def parts(self) -> list[Node]:
        """What the first launch returns, each once."""
        return list({id(part): part for node in self.reductions for part in self._parts_of(node)}.values())

    def wholes(self, inputs: Mapping[int, Node]) -> list[Node]:
        """What each reduction comes to, of the parts that `inputs` holds."""
        return [self._whole(node, [inputs[id(part)] for part in self._parts_of(node)]) for node in self.reductions]

    def _parts_of(self, node: Node) -> list[Node]:
        """The reduction of each part; of deviations from a mean or maximum, the part's own and those from that."""
        first = self.analysis.partners.get(id(node))
        if node.op in EXTREMES:
            return [self._reduced(node, node.inputs[0], self.inner), self._extreme(node, node.inputs[0], self.inner)]
        if first is None:
            if node.op not in SPLIT:
                raise UnmatchedError(f"{node.where} is not split", operation=node.op)
            return [self._reduced(node, node.inputs[0], self.inner)]
        if first.op == "max":
            value = self.build("maximum", first.inputs[0], LOWEST)
            most = self._reduced(first, value, self.inner)
            return [most, self._reduced(node, self._exponential(value, most), self.inner)]
        mean = self._reduced(first, first.inputs[0], self.inner)
        return [mean, self._reduced(node, self._squared(first.inputs[0], mean), self.inner)]

    def _whole(self, node: Node, parts: Sequence[Node]) -> Node:
        """The reduction of the parts' results; deviations from parts' means move to the mean of all (Chan et al.)."""
        if len(parts) == 1:
            return self._reduced(node, parts[0], self.outer)
        if node.op in EXTREMES:
            return self._first_place(node, *parts)
        first, (own, sums) = self.analysis.partners[id(node)], parts
        found = self._reduced(first, own, self.outer)
        if first.op == "max":
            return self._reduced(node, self.build("mul", sums, self._exponential(own, found)), self.outer)
        moved = self._reduced(node, self._squared(own, found), self.outer)
        within = self._reduced(node, sums, self.outer)
        return self.build("add", within, self.build("mul", moved, _size(self.build, self.analysis, self.inner)))

    def _extreme(self, node: Node, x: Node, dims: Dims) -> Node:
        """The value that an argmax or argmin is the place of, as a reduction for it alone would give it."""
        return self._reduced(replace(node, op=EXTREMES[node.op], dtype=x.dtype), x, dims)

    def _first_place(self, node: Node, within: Node, values: Node) -> Node:
        """The first place of an extreme, from its place within each of the parts that hold it, or NaN."""
        if len(self.outer) > 1:
            raise UnmatchedError(f"{node.where} has parts in several dimensions", operation=node.op)
        build, part = self.build, self.build.iota(values.shape, *self.outer)
        before = build("mul", part, _size(build, self.analysis, self.inner, dtype="int64"))
        most = self._extreme(node, values, self.outer)
        holds = build("logical_or", build("eq", values, most), build("ne", values, values))
        places = build("where", holds, build("add", within, before), LAST_PLACE)
        return self._reduced(replace(node, op="min"), places, self.outer)

    def _exponential(self, x: Node, most: Node) -> Node:
        dtype = compute_dtype(x.dtype)
        return self.build.node("exp", (self.build.node("sub", (x, most), x.shape, dtype),), x.shape, dtype)

    def _squared(self, x: Node, mean: Node) -> Node:
        """As nodes that a row kernel knows for deviations from a mean."""
        dtype = compute_dtype(x.dtype)
        centred = self.build.node("sub", (x, mean), x.shape, dtype)
        return self.build.node("mul", (centred, centred), x.shape, dtype)

    def _reduced(self, like: Node, x: Node, dims: Sequence[int]) -> Node:
        """`x` reduced as `like` is, over `dims`, not rounded to 16 bits."""
        shape = tuple(1 if dim in dims else size for dim, size in enumerate(x.shape))
        return self.build.node(like.op, (x,), shape, compute_dtype(like.dtype), Reduction(tuple(dims)))


def _outer_and_inner(analysis: RowsAnalysis) -> tuple[Dims, Dims]:
    """The reduced dimensions, cut where there are enough parts."""
    for cut in range(1, len(analysis.reduced)):
        outer, inner = analysis.reduced[:cut], analysis.reduced[cut:]
        outer_size, inner_size = (math.prod(analysis.shape[dim] for dim in dims) for dims in (outer, inner))
        if analysis.rows * outer_size >= ENOUGH_PARTS and inner_size > 1:
            return outer, inner
    raise UnmatchedError(f"the columns {analysis.columns_shape} have no outer dimension of enough parts", operation="")

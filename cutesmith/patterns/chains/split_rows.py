"""The pattern of few long rows, such as a layer norm over images or x / norm(x): reductions in launches of their own.

A row kernel gives a row to one thread block: sixteen rows keep sixteen of 132 SMs busy, and each of their threads adds
up millions of numbers in float32. A column kernel gives a block some 32 rows that lie side by side, as the channels of
an image in `channels_last` do. Here the outer ones of the reduced dimensions become rows too: one launch reduces the
parts, one combines what they came to, and the outputs are elementwise in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan, Launch, Result, part_of_chain, passed_on, returning
from cutesmith.patterns.chains.parted import FEW_ROWS, FEWEST_PARTS, sizes_of, with_parts
from cutesmith.patterns.chains.totals import SPLIT, reductions
from cutesmith.patterns.columns.plan import match as columns
from cutesmith.patterns.elementwise.plan import match as elementwise
from cutesmith.patterns.graph.attributes import Reduction, Sized
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Graph, Node, nodes_of, with_nodes, with_values
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

ENOUGH_SIDE_BY_SIDE = 128
"""Blocks of the column kernel, which has more threads where blocks are few: about one for each SM."""


def match(graph: Graph) -> ChainPlan:
    """A plan for a graph of few long rows that can be split, or UnmatchedError."""
    wanted = _parts_wanted(graph)
    graph = _in_parts(graph, wanted)
    rounds = _Rounds(_with_divisors(graph), wanted)
    while rounds.has_more:
        rounds.go_on()
    rounds.end()
    return ChainPlan(graph, tuple(rounds.launches), tuple(rounds.results), "split_rows")


def _parts_wanted(graph: Graph) -> float:
    """In how many parts rows keep a GPU busy; UnmatchedError where one launch does, or where it ends soon."""
    analysis = analyse(graph)
    elements = analysis.rows * analysis.columns
    try:
        blocks, enough = columns(graph).blocks, ENOUGH_SIDE_BY_SIDE
    except UnmatchedError:
        blocks, enough = max(1, analysis.rows), ENOUGH_PARTS
    if blocks > FEW_ROWS or elements < blocks * LONG_ROW:
        raise UnmatchedError("the rows are many or short", operation="")
    return enough / blocks


def _in_parts(graph: Graph, wanted: float) -> Graph:
    """The graph with the last of the reduced dimensions in parts, where no outer one is long enough to be split."""
    analysis = analyse(graph)
    try:
        _outer_and_inner(analysis, wanted)
    except UnmatchedError:
        fewest = max(2, min(FEWEST_PARTS, math.ceil(wanted)))
        return with_parts(graph, analysis.reduced[-1] - analysis.rank, fewest)
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


class _Rounds:
    """The launches so far, and what is left of the graph once their results are known.

    A round of reductions takes two launches. The second returns what the reductions come to, and makes the outputs of
    as many elements that need no more than those.
    """

    def __init__(self, graph: Graph, wanted: float) -> None:
        self.left, self.wanted = graph, wanted
        self.launches = list[Launch]()
        self.waiting = list(range(len(graph.outputs)))
        self.places = dict[int, int]()
        """Of the outputs that a launch has made."""

    @property
    def has_more(self) -> bool:
        """Whether reductions are left."""
        return any(node.is_reduction for node in self.left.nodes())

    @property
    def results(self) -> list[Result]:
        """All outputs in their order."""
        return [Result(self.places[at]) for at in sorted(self.places)]

    def go_on(self) -> None:
        """Takes the first round of reductions that are left."""
        split, number = _Split(analyse(self.left), self.wanted), len(self.launches) // 2 + 1
        suffix = f"_{number}" if number > 1 else ""
        parts = returning(self.left, split.parts())
        given, inputs = passed_on(self.left, parts.outputs, f"part{suffix}")
        self.launches.append(part_of_chain(f"parts{suffix}", parts, reductions))
        wholes = split.wholes(dict(zip(map(id, parts.outputs), inputs, strict=True)))
        found = dict(zip(map(id, split.reductions), wholes, strict=True))
        try:
            self._combine(f"wholes{suffix}", given, found, split.last_outputs())
        except UnmatchedError:  # an output is not of the shape that the combined values have
            self._combine(f"wholes{suffix}", given, found, [])

    def end(self) -> None:
        """Computes what is left, element by element."""
        if self.waiting:
            self._returned(len(self.left.arguments), range(len(self.waiting)))
            self.launches.append(part_of_chain("apply", self.left, elementwise))

    def _combine(self, name: str, given: Graph, found: Mapping[int, Node], made: Sequence[int]) -> None:
        """A launch of the values in `found`, those that are needed later, and of these outputs of what is left."""
        build, ended = GraphBuilder(), with_values(given, found).outputs
        rest = [at for at in range(len(ended)) if at not in made]
        later = {id(node) for node in nodes_of(tuple(given.outputs[at] for at in rest))}
        needed = {key: whole for key, whole in found.items() if key in later}
        outputs = [build.retype(ended[at], given.outputs[at].dtype) for at in made]
        launch = returning(given, [*needed.values(), *outputs])
        known, values = passed_on(given, launch.outputs, name)
        self.launches.append(part_of_chain(name, launch, reductions))
        self._returned(len(given.arguments) + len(needed), made)
        strides = tuple(given.output_strides[at] for at in rest)
        left = replace(known, outputs=tuple(given.outputs[at] for at in rest), output_strides=strides)
        self.left = with_values(replace(left, returns_tuple=len(rest) > 1), dict(zip(needed, values, strict=False)))

    def _returned(self, start: int, made: Sequence[int]) -> None:
        """Notes the places, from `start` on, of those of the waiting outputs that a launch makes."""
        self.places |= {self.waiting[at]: start + place for place, at in enumerate(made)}
        self.waiting = [number for at, number in enumerate(self.waiting) if at not in made]


class _Split:
    """The first round of reductions of a graph, in two: over the inner of their dimensions, then over the outer."""

    def __init__(self, analysis: RowsAnalysis, wanted: float) -> None:
        self.analysis, self.build = analysis, GraphBuilder()
        self.reductions = analysis.reductions[0]
        self.outer, self.inner = _outer_and_inner(analysis, wanted)

    def parts(self) -> list[Node]:
        """What the first launch returns, each once."""
        return list({id(part): part for node in self.reductions for part in self._parts_of(node)}.values())

    def wholes(self, inputs: Mapping[int, Node]) -> list[Node]:
        """What each reduction comes to, of the parts that `inputs` holds."""
        return [self._whole(node, [inputs[id(part)] for part in self._parts_of(node)]) for node in self.reductions]

    def last_outputs(self) -> list[int]:
        """The places of outputs with a value for each row, which need no other reductions than those of this round."""
        own = set(map(id, self.reductions))
        sizes = {at: math.prod(node.shape) for at, node in enumerate(self.analysis.graph.outputs)}
        below = {at: nodes_of((self.analysis.graph.outputs[at],)) for at in sizes if sizes[at] == self.analysis.rows}
        return [at for at, nodes in below.items() if all(id(node) in own for node in nodes if node.is_reduction)]

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


def _outer_and_inner(analysis: RowsAnalysis, wanted: float) -> tuple[Dims, Dims]:
    """The reduced dimensions, cut where there are enough parts."""
    for cut in range(1, len(analysis.reduced)):
        outer, inner = analysis.reduced[:cut], analysis.reduced[cut:]
        outer_size, inner_size = (math.prod(analysis.shape[dim] for dim in dims) for dims in (outer, inner))
        if outer_size >= wanted and inner_size > 1:
            return outer, inner
    raise UnmatchedError(f"the columns {analysis.columns_shape} have no outer dimension of enough parts", operation="")

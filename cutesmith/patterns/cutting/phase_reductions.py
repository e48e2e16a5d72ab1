"""Reductions of a transposed convolution's positions that read the products of its phases as they lie.

A sum, mean, variance or extreme of all positions does not depend on their order: each product is reduced by itself, and
a pointwise function joins the results. One that leaves positions apart, such as the least of all channels, is
computed for the places of each product, and what is left is put in order: fewer bytes than before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from cutesmith.patterns.graph.attributes import Reduction
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import compute_dtype
from cutesmith.patterns.graph.nodes import Graph, Node, with_nodes
from cutesmith.patterns.graph.shapes import Shape
from cutesmith.patterns.graph.views import push_permute, push_slice
from cutesmith.patterns.graph.window_attributes import Interleaving, Phase

JOINED_BY = {
    "sum": "add", "mean": "add", "var": "add", "prod": "mul", "max": "maximum", "min": "minimum",
    "any": "logical_or", "all": "logical_and",
}  # fmt: skip
"""The pointwise operation that makes the reduction of a whole of those of its parts."""


class _OrderedError(Exception):
    """A value depends on where positions are."""


def with_reductions_of_phases(graph: Graph) -> Graph:
    """The graph in which reductions of positions are of phases; itself where there is none."""
    build, changed = GraphBuilder(), list[Node]()

    def maybe(node: Node) -> Node:
        if node.op not in JOINED_BY or (anchor := _anchor_of(node.inputs[0])) is None:
            return node
        build.origin = node.origin
        try:
            changed.append(_Positions(build, anchor).reduced(node))
        except _OrderedError:
            return node
        return changed[-1]

    rewritten = with_nodes(graph, maybe)
    return rewritten if changed else graph


def _anchor_of(node: Node) -> Node | None:
    """The phases in order that a value is a pointwise function of."""
    stack, seen = [node], set[int]()
    while stack:
        each = stack.pop()
        if each.op == "interleave":
            return each
        if id(each) not in seen and (each.is_pointwise or each.op == "reshape"):
            seen.add(id(each))
            stack.extend(each.inputs)
    return None


@dataclass(frozen=True)
class _Run:
    """Along one dimension: `count` phases of a group from `phase` on, of which `places` from `first` are positions."""

    group: int
    phase: int
    count: int
    first: int
    places: int


@dataclass
class _Positions:
    """The positions of an anchor, part by part; a value of a part is (…, *phases, *places)."""

    build: GraphBuilder
    anchor: Node
    known: dict[int, Node] = field(default_factory=dict)  # of the part that is seen now, by ids of the graph's nodes

    @property
    def order(self) -> Interleaving:
        return Interleaving.of(self.anchor)

    @property
    def sizes(self) -> Shape:
        return self.anchor.shape[-self.order.rank :]

    def reduced(self, node: Node) -> Node:
        """What a reduction comes to, in its own shape; _OrderedError where positions have to be in order."""
        over, source = Reduction.of(node).dims, node.inputs[0]
        first = len(self._before_positions(source))
        if not any(dim >= first for dim in over):
            return self._of_places(node)
        if set(range(first, len(source.shape))) - set(over):
            raise _OrderedError
        if node.op == "var":
            return self._variance(node)
        kind = compute_dtype(node.dtype)
        total = self._total(replace(node, op="sum") if node.op == "mean" else node, kind)
        if node.op == "mean":
            total = self.build("div", total, float(self._count(node)))
        return self.build.retype(total, node.dtype)

    def _total(self, node: Node, dtype: str) -> Node:
        (source,), over = node.inputs, Reduction.of(node).dims
        first, results = len(self._before_positions(source)), list[Node]()
        for part in self._parts():
            value = self._value(source, part)
            dims = tuple(dim for dim, n in enumerate(value.shape) if n > 1 and (dim >= first or dim in over))
            shape = tuple(1 if dim in dims else n for dim, n in enumerate(value.shape))
            found = self.build.node(node.op, (value,), shape, dtype, Reduction(dims))
            results.append(self.build.reshape(found, node.shape))
        while len(results) > 1:
            join = JOINED_BY[node.op]
            results = [self.build(join, results[0], results[1], dtype=dtype), *results[2:]]
        return results[0]

    def _variance(self, node: Node) -> Node:
        """Of all deviations from the mean of all positions, which is known before."""
        (source,), kind = node.inputs, compute_dtype(node.dtype)
        mean = self.reduced(replace(node, op="mean", dtype=kind))
        centred = replace(node, op="sub", inputs=(source, mean), shape=source.shape, dtype=kind)
        square = replace(node, op="mul", inputs=(centred, centred), shape=source.shape, dtype=kind)
        total = self._total(replace(node, op="sum", inputs=(square,)), kind)
        degrees = max(0.0, self._count(node) - Reduction.of(node).correction)
        return self.build("div", total, degrees, dtype=node.dtype)

    def _count(self, node: Node) -> int:
        return math.prod(node.inputs[0].shape) // math.prod(node.shape)

    def _of_places(self, node: Node) -> Node:
        """Positions in order of what each product's places come to; the last of the kept dimensions is the outputs'."""
        (source,), over, rank = node.inputs, Reduction.of(node).dims, self.order.rank
        lead = len(self.anchor.shape) - rank - 1
        if source.shape != self.anchor.shape or any(None in along for along in self.order.phases):
            raise _OrderedError
        results = list[Node]()
        for product in self.anchor.inputs:
            value = self._value(source, self._outputs_first(product))
            shape = tuple(1 if dim in over else n for dim, n in enumerate(value.shape))
            found = self.build.stored(self.build.node(node.op, (value,), shape, node.dtype, Reduction(over)))
            order = [*range(lead), *range(lead + 1, lead + 1 + rank), lead, *range(lead + 1 + rank, len(shape))]
            results.append(push_permute(self.build, found, order))
        return self.build.node("interleave", results, node.shape, node.dtype, self.order)

    # A part

    def _parts(self) -> Iterator[Node]:
        """Neighbouring phases with as many places, as they lie in memory: together every position once."""
        lead, rank = len(self.anchor.shape) - self.order.rank - 1, self.order.rank
        runs = [_runs(along, size) for along, size in zip(self.order.phases, self.sizes, strict=True)]
        for chosen in itertools.product(*runs):
            seen = self.anchor.inputs[self.order.number([run.group for run in chosen])]
            for dim, run in enumerate(chosen, lead):
                seen = push_slice(self.build, seen, dim, run.phase, run.count)
                seen = push_slice(self.build, seen, dim + rank + 1, run.first, run.places)
            yield self._outputs_first(seen)

    def _outputs_first(self, product: Node) -> Node:
        """(…, *phases, outputs, *places) as (…, outputs, *phases, *places)."""
        lead, rank = len(self.anchor.shape) - self.order.rank - 1, self.order.rank
        order = [*range(lead), lead + rank, *range(lead, lead + rank), *range(lead + rank + 1, len(product.shape))]
        return push_permute(self.build, product, order)

    def _value(self, node: Node, part: Node) -> Node:
        """A function of the anchor's positions for those of a part."""
        self.known = {id(self.anchor): part}
        return self._seen(node, part)

    def _seen(self, node: Node, part: Node) -> Node:
        if id(node) not in self.known:
            if not (node.is_pointwise or node.op == "reshape"):
                raise _OrderedError
            before, positions = self._before_positions(node), part.shape[-2 * self.order.rank :]
            inputs = [self._operand(child, len(node.shape) - len(before), part) for child in node.inputs]
            if node.op == "reshape":
                self.known[id(node)] = self.build.reshape(inputs[0], (*before, *positions))
            else:
                self.known[id(node)] = self.build.with_inputs(node, inputs, (*before, *positions))
        return self.known[id(node)]

    def _operand(self, node: Node, dims: int, part: Node) -> Node:
        """An operand of a value whose last `dims` dimensions are positions."""
        if all(size == 1 for size in node.shape[-dims:]):
            more = 2 * self.order.rank - dims
            return self.build.reshape(node, (*node.shape, *(1,) * more)) if len(node.shape) > dims else node
        return self._seen(node, part)

    def _before_positions(self, node: Node) -> Shape:
        """The shape without positions, which are the last dimensions or one."""
        rank = self.order.rank
        if node.shape[-rank:] == self.sizes:
            return node.shape[:-rank]
        if node.shape[-1:] == (math.prod(self.sizes),):
            return node.shape[:-1]
        raise _OrderedError


def _runs(along: Sequence[Phase | None], size: int) -> list[_Run]:
    """The phases of the positions along a dimension, neighbours together where they have the same places."""
    found = list[_Run]()
    for at, phase in enumerate(along[:size]):
        if phase is None:  # positions that are 0
            raise _OrderedError
        places = len(range(at, size, len(along)))
        same = (run for run in found if (run.group, run.first, run.places) == (phase.group, phase.first, places))
        run = next((run for run in same if phase.at in (run.phase - 1, run.phase + run.count)), None)
        if run is None:
            found.append(_Run(phase.group, phase.at, 1, phase.first, places))
        else:
            found[found.index(run)] = replace(run, phase=min(run.phase, phase.at), count=run.count + 1)
    return found

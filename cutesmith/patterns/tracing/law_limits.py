"""Sizes at which a function is not what its laws say, so that a kernel refuses them: 1, and such as leave a rest.

Laws are found from traces on multiples of the given sizes. `squeeze` gives a result of other dimensions where a size is
1, and three chunks of 7 are 3, 3 and 1. Both are tried; a size between is for verification on other input sets to find.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from cutesmith.patterns.graph.attributes import Constant, Iota, Sized
from cutesmith.patterns.graph.equality import node_pairs, numbers_beside
from cutesmith.patterns.graph.nodes import Graph, Node, views_of
from cutesmith.patterns.graph.size_laws import Place, SizeLaw
from cutesmith.patterns.tracing.laws import Group, Growth, close
from cutesmith.patterns.tracing.study import MOST_ALONE, Study, fewest_with, grown

MOST_DIVISORS = 16
"""Steps that are tried, the smallest first, to see in which a size may grow."""


@dataclass(frozen=True)
class LawLimits:
    """What a graph that follows the sizes of these groups must not be given."""

    study: Study
    groups: tuple[Group, ...]
    followed: Graph

    @classmethod
    def of(cls, study: Study, groups: tuple[Group, ...], followed: Graph) -> LawLimits:
        """With rows and columns that are equally many as groups of their own where each may grow apart."""
        apart = tuple(part for group in groups for part in study.sides(group))
        return cls(study, groups if study.series(apart) is None else apart, followed)

    def not_ones(self) -> Iterator[tuple[Place, ...]]:
        """The dimensions of which not all may be 1, as the result has another shape then; the fewest that do it."""
        found = set[frozenset[Place]]()
        for group in (*self.groups[: self.study.most_probes], frozenset[Place]().union(*self.groups)):
            places = [place for place in sorted(group) if place[1] >= 0 and frozenset({place}) not in found]
            if places and self._has_other_shape(places):
                alone = [place for place in places[:MOST_ALONE] if self._has_other_shape([place])]
                found |= {frozenset({place}) for place in alone}
                left = [place for place in places if place not in alone]
                if left and self._has_other_shape(left):
                    found |= {frozenset(fewest_with(p, left, self._has_other_shape)) for p in left[:MOST_ALONE]}
        yield from sorted(tuple(sorted(places)) for places in found if not any(other < places for other in found))

    def only_ones(self) -> Iterator[Place]:
        """The dimensions of 1 that the function takes larger, but does something else then: it was traced for 1 alone.

        Several of one argument may have to be larger together, as the rows and columns of a matrix.
        """
        ones = [place for place, size in self.study.places() if size == 1 and place[1] >= 0][:MOST_ALONE]
        alone = [place for place in ones if self.study.is_taken([place])]
        yield from (place for place in alone if self._is_other([place]))
        for index in sorted({index for index, _ in ones}):
            together = [place for place in ones if place[0] == index and place not in alone]
            if len(together) > 1 and self.study.is_taken(together) and self._is_other(together):
                yield from together

    def steps(self) -> Iterator[tuple[Place, int]]:
        """The dimensions whose sizes must be multiples of a number: of others the function is not what the laws say."""
        for group in self.groups[: self.study.most_probes]:
            sizes = {place: self.study.graph.size_at(place) for place in group}
            common = math.gcd(*sizes.values())
            small = [n for n in range(1, math.isqrt(common) + 1) if common % n == 0]
            divisors = sorted({*small, *(common // n for n in small)})[:MOST_DIVISORS]
            if common > 1 and all(dim >= 0 for _, dim in group):
                step = next((n for n in divisors if self._holds_in_steps(group, Fraction(n, common))), common)
                yield from ((place, size // common * step) for place, size in sorted(sizes.items()) if step > 1)

    def _holds_in_steps(self, group: Group, step: Fraction) -> bool:
        return self._holds(dict.fromkeys(group, 1 + step))

    def _holds(self, growth: Growth) -> bool:
        """Whether the function takes such sizes, and the laws give the numbers of a trace on them."""
        larger = self.study.larger(growth)
        if larger is None or numbers_beside(self.study.graph, larger) is None or self._other_shape(larger, growth):
            return False
        sizes = self._sizes(growth)
        numbers = ((_numbers(law), _numbers(number)) for law, number in node_pairs(self.followed, larger))
        return all(close(_value(a, sizes), _value(b, sizes)) for laws, found in numbers for a, b in zip(laws, found))

    def _is_other(self, places: Sequence[Place]) -> bool:
        """Whether the trace where these are twice as large says something else, or counts along one that was 1."""
        larger = self.study.larger(dict.fromkeys(places, 2))
        if larger is None or numbers_beside(self.study.graph, larger) is None:
            return True
        return any(
            a.op == "iota" and 1 == a.shape[Iota.of(a).dim] < b.shape[Iota.of(b).dim]
            for a, b in node_pairs(self.study.graph, larger)
        )

    def _has_other_shape(self, places: Sequence[Place]) -> bool:
        """Whether results have other sizes than their laws say where all of these are 1."""
        growth = {place: Fraction(1, self.study.graph.size_at(place)) for place in places}
        single = self.study.larger(growth)
        return single is not None and bool(single.outputs) and self._other_shape(single, growth)

    def _other_shape(self, other: Graph, growth: Growth) -> bool:
        """Whether results have other sizes than the laws say; of sizes that are broadcast a law may follow either."""
        whole = {place for group in self.groups if growth.keys() >= group for place in group}
        touched = {place: factor for group in self.groups for factor in {growth[p] for p in group if p in growth}
                   for place in group}  # fmt: skip
        ways = [self._sizes(touched), self._sizes({place: growth[place] for place in growth.keys() & whole})]
        shapes = [node.shape for node in other.outputs]
        if [len(shape) for shape in shapes] != [len(laws) for laws in self._result_laws]:
            return True
        pairs = ((law, size) for laws, shape in zip(self._result_laws, shapes) for law, size in zip(laws, shape))
        return any(law is not None and size not in [law.value(sizes) for sizes in ways] for law, size in pairs)

    @cached_property
    def _result_laws(self) -> list[list[SizeLaw | None]]:
        """The law of each size of each result, None where there is none."""
        traces = [self.study.larger(growth) for growth in self.study.growths(self.groups)]
        series = self.study.series(self.groups)
        assert series is not None and all(trace is not None for trace in traces), "the graph follows these groups"
        laws = self.study.laws(self.groups, series)
        results = zip(*(trace.outputs for trace in traces if trace is not None), strict=True)
        return [
            [laws.of_size(sizes) for sizes in zip(*(node.shape for node in nodes), strict=True)] for nodes in results
        ]

    def _sizes(self, growth: Growth) -> list[tuple[int, ...]]:
        return [argument.sizes for argument in grown(self.study.graph.arguments, growth)]


def _numbers(node: Node) -> list[SizeLaw | float]:
    """The numbers in a node: the sizes in its views, and its value."""
    sizes = [size for view in views_of(node) for size in view.sizes if isinstance(size, (int, SizeLaw))]
    if node.op == "sized":
        return [*sizes, Sized.of(node).law]
    return [*sizes, Constant.of(node).value] if node.op == "constant" else [*sizes]


def _value(number: SizeLaw | float, sizes: Sequence[Sequence[int]]) -> float:
    return number.value(sizes) if isinstance(number, SizeLaw) else number

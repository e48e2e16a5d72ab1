"""Sizes that a function does not take apart, which a kernel therefore compares: k of both factors, rows of parts.

Each dimension is made larger alone. What PyTorch refuses it takes when the sizes that have to be equal grow together:
the fewest that do are one size. One of them may be 1 where PyTorch broadcasts it by the same operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from cutesmith.patterns.graph.equality import numbers_beside
from cutesmith.patterns.graph.size_laws import EqualSizes, Place
from cutesmith.patterns.tracing.laws import Group, Growth
from cutesmith.patterns.tracing.study import MOST_ALONE, MOST_TOGETHER, Study, fewest_with

MOST_EXHAUSTED = 8
"""Dimensions among which all sets of up to four are tried; of more all pairs are."""
OTHER_SIZES = 4
"""Sizes that a dimension is tried with, to see whether the function takes any other than its own."""

Places = tuple[Place, ...]


@dataclass(frozen=True)
class SizesTogether:
    """What traces tell of sizes: of those that `groups` follow, and of the others.

    Of a large graph few dimensions are tried.
    """

    study: Study
    groups: tuple[Group, ...]

    def compared(self) -> tuple[EqualSizes, ...]:
        """The dimensions that are of one size, or in one proportion, in each call: as they were traced if in doubt."""
        whole = [EqualSizes(places) for places in (*self._untried(), *self._of_another_graph())]
        parts = (each for each in self.equal if not any(set(each.places) <= set(one.places) for one in whole))
        return (*parts, *whole)

    @cached_property
    def equal(self) -> tuple[EqualSizes, ...]:
        """The dimensions of equal sizes, as far as they were tried."""
        return tuple(each for places in self._tried for each in self._equal(places))

    def most(self) -> Iterator[tuple[Place, Place]]:
        """The dimensions that grow with another one only, which grows alone: with the size that they do not exceed."""
        for places in self._tried:
            for place in self._bound_alone(places):
                others = (other for other in places if self._size(other) == self._size(place) and self._grows(other))
                yield from ((place, other) for other in others if self._grows(place, other))

    def fixed(self) -> Iterator[Place]:
        """The dimensions that no group follows, of which the function takes no other size: it unpacks so many rows."""
        left = self._ungrouped[:MOST_ALONE]
        if OTHER_SIZES * (1 + len(left)) > self.study.most_probes:
            return
        lonely = self._bound_alone(left)
        if not any(map(self._is_taken, _other_sizes(lonely, self._size))):
            yield from (place for place in lonely if not any(map(self._is_taken, _other_sizes([place], self._size))))

    def _untried(self) -> Iterator[Places]:
        """The dimensions of a group that there were no traces for: they grow together, and maybe only so."""
        yield from (p for p in map(_of_tensors, self.groups) if len(p) > 1 and p not in self._tried)

    def _of_another_graph(self) -> Iterator[Places]:
        """The dimensions of a group of which the function takes one larger alone, but does something else then.

        As far as that was tried: laws of a group may then hold for equal sizes only.
        """
        for places in map(_of_tensors, self.groups):
            alone = (self.study.known.get(frozenset({(place, 2)})) for place in places)
            if len(places) > 1 and any(each and numbers_beside(self.study.graph, each) is None for each in alone):
                yield places

    def _equal(self, places: Places) -> Iterator[EqualSizes]:
        """Sets that grow together, the fewest dimensions in each; those of no small set are taken to be one."""
        left, others = [place for place in places if not self._grows(place)], list[Place]()
        while left:
            are_few = len(left) <= MOST_EXHAUSTED
            most = MOST_TOGETHER if are_few else len(left) - 1
            together = fewest_with(left[0], left, self.study.is_taken, most)
            found = self._grows(*together) and (are_few or len(together) < len(left))
            if found and self._keep_proportion(together):
                yield self._with_ones(together)
            others += [] if found else [left[0]]
            left = [place for place in left if place not in (together if found else left[:1])]
        if len(others) > 1 and self._grows(*others) and self._keep_proportion(others):
            yield self._with_ones(tuple(others))

    def _with_ones(self, places: Places) -> EqualSizes:
        return EqualSizes(places, frozenset(filter(self._may_be_one, places)))

    @cached_property
    def _tried(self) -> list[Places]:
        left, found = self.study.most_probes, list[Places]()
        for places in (*map(_of_tensors, self.groups), self._ungrouped[:MOST_ALONE]):
            pairs = len(places) * (len(places) - 1) // 2
            if 0 < pairs <= left and len(places) <= MOST_ALONE:
                found.append(places)
                left -= pairs
        return found

    @cached_property
    def _ungrouped(self) -> Places:
        grouped = frozenset[Place]().union(*self.groups)
        return _of_tensors(place for place, _ in self.study.places() if place not in grouped)

    def _bound_alone(self, places: Places) -> list[Place]:
        """Those that do not grow alone, and are not of equal sizes with others."""
        equal = {place for each in self.equal for place in each.places}
        return [place for place in places if place not in equal and not self._grows(place)]

    def _size(self, place: Place) -> int:
        return self.study.graph.size_at(place)

    def _grows(self, *places: Place) -> bool:
        return self.study.is_taken(places)

    def _is_taken(self, growth: Growth) -> bool:
        return self.study.larger(growth) is not None

    def _may_be_one(self, place: Place) -> bool:
        """Whether PyTorch broadcasts one; one that was traced as 1 grows with the others only, as they were tried."""
        if self._size(place) == 1:
            return False
        single = self.study.larger({place: Fraction(1, self._size(place))})
        return single is not None and numbers_beside(self.study.graph, single) is not None

    def _keep_proportion(self, places: Sequence[Place]) -> bool:
        """Whether sizes that are not equal stay so: of 8 that are the sum of 4 and 4 one may grow with one other."""
        sizes = {place: self._size(place) for place in places}
        least = min(sizes.values())
        more = {place: Fraction(size + least, size) for place, size in sizes.items() if size > least}
        small = [place for place, size in sizes.items() if size == least]
        return not (more and any(self._is_taken({**more, place: Fraction(2)}) for place in small))


def _of_tensors(group: Iterable[Place]) -> Places:
    return tuple(place for place in sorted(group) if place[1] >= 0)


def _other_sizes(places: Sequence[Place], size: Callable[[Place], int]) -> Iterator[Growth]:
    """One more of each, three times as many, one less, and 1 of a single one, which may be broadcast."""
    ways = [(1, 1), (3, 0), (1, -1), *[(0, 1)] * (len(places) == 1)]
    for times, more in ways:
        sizes = {place: max(1, times * size(place) + more) for place in places}
        growth = {place: Fraction(new, size(place)) for place, new in sizes.items() if new != size(place)}
        yield from [growth] if growth else []

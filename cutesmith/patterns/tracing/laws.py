"""The laws that numbers of several traces obey, each trace on other sizes of the arguments."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cutesmith.patterns.graph.nodes import Argument
from cutesmith.patterns.graph.size_laws import Dims, Place, SizeLaw

Places = tuple[Place, ...]
Growth = Mapping[Place, int | Fraction]
"""A factor for each dimension that grows; sizes stay integers."""
Group = frozenset[Place]
"""Dimensions that grow by one factor: of one size, or of sizes that the function keeps in proportion."""

CLOSE = 1e-12
MOST_COUNTS = 3
"""Counts of windows in one product: those along the dimensions of an image."""
MOST_ADDED = 24
"""Distinct sizes among which sums are looked for."""


def close(first: float, second: float) -> bool:
    """Whether two traces have the same number; NaN equals itself."""
    both_nan = math.isnan(first) and math.isnan(second)
    return both_nan or first == second or math.isclose(first, second, rel_tol=CLOSE)


@dataclass(frozen=True)
class Laws:
    """Products of dimensions of one argument, the fewest first, with their values in all traces.

    `counts` are sizes with a law that an operation says, as many windows as there are along a size.
    """

    products: tuple[tuple[Dims, tuple[int, ...]], ...]
    counts: tuple[tuple[SizeLaw, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, arguments: Sequence[Argument], growths: Sequence[Growth], groups: Sequence[Group]) -> Laws:
        """For traces whose sizes are those of the arguments times the growths; of a group one dimension is taken."""
        number = {place: at for at, group in enumerate(groups) for place in group}
        found: dict[tuple[int, ...], tuple[Dims, tuple[int, ...]]] = {}

        def value(dims: Places, growth: Growth) -> int:
            return math.prod(int(arguments[index].sizes[dim] * growth.get((index, dim), 1)) for index, dim in dims)

        for dims in _sets_of_dims(arguments, number):
            values = tuple(value(dims, growth) for growth in growths)
            kinds = sorted(number[place] for place in dims)
            found.setdefault((*kinds, -1, *values), (dims, values))
        return cls(tuple(sorted(found.values(), key=lambda product: len(product[0]))))

    def counting(self, count: SizeLaw, sizes: Sequence[float], counts: Sequence[float]) -> Laws:
        """The laws where an operation makes `counts` of `sizes`, by a law of one size."""
        size, values = self.of_size(sizes), tuple(map(int, counts))
        if size is None or len(set(values)) == 1 or any(values == known for _, known in (*self.counts, *self.products)):
            return self
        return replace(self, counts=(*self.counts, (count.following(size), values)))

    def of_number(self, series: Sequence[float]) -> SizeLaw | None:
        """offset + factor * product ** power, as exact as floats are; None where no law fits all traces."""
        if not all(map(math.isfinite, series)):
            return None
        for shifted in (False, True):
            for (dims, products), power in itertools.product(self._sizes, (1.0, -1.0, 0.5, -0.5)):
                solution = _solved(series, [math.pow(product, power) for product in products], shifted)
                if solution is not None:
                    return SizeLaw(*solution, dims, power)
        summed = self._sum(tuple(map(int, series))) if all(value == int(value) for value in series) else None
        return None if summed is None else SizeLaw(0.0, 1.0, summed[0], 1.0, summed[1:])

    def of_size(self, series: Sequence[float]) -> SizeLaw | None:
        """An integer: the same in all traces, a product, a fraction of one, a sum, or a size and some more."""
        values = tuple(map(int, series))
        if len(set(values)) == 1:
            return SizeLaw.constant(values[0])
        if (law := self._exact(values)) is not None:
            return law
        if 0 not in values and (law := self._proportion(values)) is not None:
            return law
        if summed := self._sum(values):
            return SizeLaw(0, Fraction(1), summed[0], 1, summed[1:])
        return self._shifted(values)

    def within(self, series: Sequence[float], whole: Sequence[float], place: Place | None) -> SizeLaw | None:
        """A size that is a fixed part of another one in all traces, that of `place` where it is an argument's."""
        parts = {Fraction(int(size), int(of)) for size, of in zip(series, whole, strict=True) if of}
        if 0 in whole or len(parts) != 1 or len(set(whole)) == 1 or 0 in parts:
            return None
        size = place or self.of_size(whole)
        if size is None:
            return None
        plain = isinstance(size, SizeLaw) and (size.offset, size.factor, size.others, size.shift) == (0, 1, (), 0)
        return SizeLaw(0, parts.pop(), size.dims if isinstance(size, SizeLaw) and plain else (size,), 1)

    @property
    def _sizes(self) -> Iterator[tuple[Dims, tuple[int, ...]]]:
        yield from self.products
        yield from (((law,), values) for law, values in self.counts)

    def _exact(self, values: tuple[int, ...]) -> SizeLaw | None:
        """A product, a count, or a product of up to three counts and dimensions of one argument."""
        known = {products: dims for dims, products in reversed((*self.products, ((), (1,) * len(values))))}
        if values in known:
            return SizeLaw(0, Fraction(1), known[values], 1)
        for law, counts in self.counts:
            if counts == values:
                return law
        parts = [(law, counts) for law, counts in self.counts if all(v % c == 0 for v, c in zip(values, counts))]
        for number in range(1, MOST_COUNTS + 1):
            for chosen in itertools.combinations_with_replacement(parts, number):
                counted = [math.prod(each) for each in zip(*(counts for _, counts in chosen), strict=True)]
                left = tuple(value // count for value, count in zip(values, counted))
                if left in known and all(map(operator.eq, map(operator.mul, left, counted), values)):
                    return SizeLaw(0, Fraction(1), (*known[left], *(law for law, _ in chosen)), 1)
        return None

    def _proportion(self, values: tuple[int, ...]) -> SizeLaw | None:
        """A fraction of a product, or of one with counts of windows."""
        products = [entry for entry in (*self.products, ((), (1,) * len(values))) if 0 not in entry[1]]
        known = {_ratios(numbers): (dims, numbers[0]) for dims, numbers in reversed(products)}
        for number in range(MOST_COUNTS + 1):
            for chosen in itertools.combinations_with_replacement(self.counts, number):
                counted = [math.prod(counts[at] for _, counts in chosen) for at in range(len(values))]
                if 0 not in counted and (found := known.get(_ratios(map(Fraction, values, counted)))) is not None:
                    factor = Fraction(values[0], counted[0] * found[1])
                    return SizeLaw(0, factor, (*found[0], *(law for law, _ in chosen)), 1)
        return None

    def places(self, series: Sequence[float]) -> frozenset[Place]:
        """The dimensions that a number follows."""
        law = self.of_size(series) if all(value == int(value) for value in series) else self.of_number(series)
        return frozenset() if law is None else law.places

    def _sum(self, values: tuple[int, ...]) -> tuple[Dims, ...] | None:
        """Two or three sizes that add up to the values in all traces."""
        single = [(dims, sizes) for dims, sizes in self._sizes if len(dims) == 1][:MOST_ADDED]
        for count in (2, 3):
            for chosen in itertools.combinations_with_replacement(single, count):
                if tuple(map(sum, zip(*(sizes for _, sizes in chosen), strict=True))) == values:
                    return tuple(dims for dims, _ in chosen)
        return None

    def _shifted(self, values: tuple[int, ...]) -> SizeLaw | None:
        for dims, products in self._sizes:
            if products[0] == products[1]:
                continue
            factor = Fraction(values[1] - values[0], products[1] - products[0])
            offset = values[0] - factor * products[0]
            exact = all(offset + factor * p == value for p, value in zip(products, values, strict=True))
            if exact and factor and offset.denominator == 1:
                return SizeLaw(int(offset), factor, dims, 1)
        return None


def _ratios(numbers: Iterable[int | Fraction]) -> tuple[Fraction, ...]:
    first, *others = numbers
    return tuple(Fraction(number) / first for number in others)


def _sets_of_dims(arguments: Sequence[Argument], growing: Mapping[Place, int]) -> Iterator[Places]:
    for index, argument in enumerate(arguments):
        dims = [dim for dim in range(-1, len(argument.shape)) if (index, dim) in growing]
        for count in range(1, len(dims) + 1):
            for chosen in itertools.combinations(dims, count):
                yield tuple((index, dim) for dim in chosen)


def _solved(series: Sequence[float], powers: Sequence[float], shifted: bool) -> tuple[float, float] | None:
    """(offset, factor) such that offset + factor * power is the value in every trace, in few digits; None otherwise."""
    if powers[0] == powers[1]:
        return None
    factor, offset = series[0] / powers[0], 0.0
    if shifted:
        factor = (series[1] - series[0]) / (powers[1] - powers[0])
        offset = series[0] - factor * powers[0]
    for digits in (6, 9, 12, 15, 17):
        o, f = (float(f"{number:.{digits}g}") for number in (offset, factor))
        if all(close(o + f * power, value) for power, value in zip(powers, series, strict=True)):
            return o, f
    return None

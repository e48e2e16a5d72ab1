"""The laws that numbers of several traces obey, each trace on other sizes of the arguments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cutesmith.patterns.graph.nodes import Argument
from cutesmith.patterns.graph.size_laws import Dims, SizeLaw

Place = tuple[int, int]
"""An argument and a dimension of it."""
Group = frozenset[Place]
"""Dimensions that grow by one factor: of one size, or of sizes that the function keeps in proportion."""

CLOSE = 1e-12
MOST_ADDED = 24
"""Distinct sizes among which sums are looked for."""


def close(first: float, second: float) -> bool:
    """Whether two traces have the same number; NaN equals itself."""
    both_nan = math.isnan(first) and math.isnan(second)
    return both_nan or first == second or math.isclose(first, second, rel_tol=CLOSE)


@dataclass(frozen=True)
class Laws:
    """Products of dimensions of one argument, the fewest first, with their values in all traces."""

    products: tuple[tuple[Dims, tuple[int, ...]], ...]

    @classmethod
    def of(cls, arguments: Sequence[Argument], growths: Sequence[Mapping[Place, int]], groups: Sequence[Group]) -> Laws:
        """For traces whose sizes are those of the arguments times the growths; of a group one dimension is taken."""
        number = {place: at for at, group in enumerate(groups) for place in group}
        found: dict[tuple[tuple[int, int], ...], Dims] = {}
        for dims in _sets_of_dims(arguments, number):
            kinds = sorted((number[place], arguments[place[0]].sizes[place[1]]) for place in dims)
            found.setdefault(tuple(kinds), dims)

        def value(dims: Dims, growth: Mapping[Place, int]) -> int:
            return math.prod(arguments[index].sizes[dim] * growth.get((index, dim), 1) for index, dim in dims)

        ordered = sorted(found.values(), key=len)
        return cls(tuple((dims, tuple(value(dims, growth) for growth in growths)) for dims in ordered))

    def of_number(self, series: Sequence[float]) -> SizeLaw | None:
        """offset + factor * product ** power, as exact as floats are; None where no law fits all traces."""
        if not all(map(math.isfinite, series)):
            return None
        for shifted in (False, True):
            for (dims, products), power in itertools.product(self.products, (1.0, -1.0, 0.5, -0.5)):
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
        for dims, products in self.products:
            if products == values:
                return SizeLaw(0, Fraction(1), dims, 1)
        for dims, products in self.products:
            factor = Fraction(values[0], products[0]) if products[0] else Fraction(0)
            if all(factor * product == value for product, value in zip(products, values, strict=True)):
                return SizeLaw(0, factor, dims, 1)
        if summed := self._sum(values):
            return SizeLaw(0, Fraction(1), summed[0], 1, summed[1:])
        return self._shifted(values)

    def places(self, series: Sequence[float]) -> frozenset[Place]:
        """The dimensions that a number follows."""
        law = self.of_size(series) if all(value == int(value) for value in series) else self.of_number(series)
        return frozenset() if law is None else law.places

    def _sum(self, values: tuple[int, ...]) -> tuple[Dims, ...] | None:
        """Two or three sizes that add up to the values in all traces."""
        single = [(dims, sizes) for dims, sizes in self.products if len(dims) == 1][:MOST_ADDED]
        for count in (2, 3):
            for chosen in itertools.combinations_with_replacement(single, count):
                if tuple(map(sum, zip(*(sizes for _, sizes in chosen), strict=True))) == values:
                    return tuple(dims for dims, _ in chosen)
        return None

    def _shifted(self, values: tuple[int, ...]) -> SizeLaw | None:
        for dims, products in self.products:
            if products[0] == products[1]:
                continue
            factor = Fraction(values[1] - values[0], products[1] - products[0])
            offset = values[0] - factor * products[0]
            exact = all(offset + factor * p == value for p, value in zip(products, values, strict=True))
            if exact and factor and offset.denominator == 1:
                return SizeLaw(int(offset), factor, dims, 1)
        return None


def _sets_of_dims(arguments: Sequence[Argument], growing: Mapping[Place, int]) -> Iterator[Dims]:
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

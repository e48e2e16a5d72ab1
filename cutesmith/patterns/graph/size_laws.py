"""Numbers that follow the sizes of arguments, such as the 1 / V of label smoothing, or the sizes in a view."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Union

Place = tuple[int, int]
"""An argument and a dimension of it; the dimension -1 stands for the value of an argument that is an integer."""
Dims = tuple[Union[Place, "SizeLaw"], ...]
"""Sizes that are multiplied: of arguments, or such as follow those by a law of their own."""


@dataclass(frozen=True)
class SizeLaw:
    """offset + factor * (shift + product of the sizes of `dims`, plus those of each of `others`) ** power.

    A size is an integer, and has a fraction as its factor, 0 where it follows no other size; it is rounded down. Only a
    size has a `shift`: windows of 3 with a step of 2 have 1 + (n - 3) / 2 positions along n elements.
    """

    offset: float
    factor: float | Fraction
    dims: Dims
    power: float
    others: tuple[Dims, ...] = ()
    shift: int = 0

    @classmethod
    def constant(cls, value: int) -> SizeLaw:
        """A size that is the same for all inputs."""
        return cls(value, Fraction(0), (), 1)

    @classmethod
    def steps(cls, free: int, step: int) -> SizeLaw:
        """How many windows there are along some elements and `free` ones more, those of a window itself taken off."""
        return cls(1 + free, Fraction(1), (), 1) if step == 1 else cls(1, Fraction(1, step), (), 1, shift=free)

    def following(self, size: SizeLaw) -> SizeLaw:
        """This law of one size, where that follows others."""
        if not size.terms:
            return SizeLaw.constant(self.of(int(size.offset)))
        if not self.factor or (self.factor == 1 and not self.offset):
            return size if self.factor else self
        if self.factor == 1:
            return replace(size, offset=size.offset + self.offset)
        if size.factor == 1 and len(size.terms) == 1:
            return replace(self, dims=size.dims, shift=self.shift + int(size.offset))
        return replace(self, dims=(size,))

    @property
    def terms(self) -> tuple[Dims, ...]:
        """The products of sizes that are added up."""
        return (self.dims, *self.others) if self.factor else ()

    @property
    def places(self) -> frozenset[Place]:
        """The (argument, dimension) pairs that it follows."""
        sizes = [size for dims in self.terms for size in dims]
        return frozenset(place for size in sizes for place in (size.places if isinstance(size, SizeLaw) else [size]))

    def moved(self, argument: Callable[[int], int]) -> SizeLaw:
        """The same law of arguments in other places."""

        def placed(dims: Dims) -> Iterator[Place | SizeLaw]:
            yield from (d.moved(argument) if isinstance(d, SizeLaw) else (argument(d[0]), d[1]) for d in dims)

        return replace(self, dims=tuple(placed(self.dims)), others=tuple(tuple(placed(dims)) for dims in self.others))

    def value(self, shapes: Sequence[Sequence[int]]) -> float:
        """The number for arguments of these shapes."""
        total = sum(math.prod(size_value(size, shapes) for size in dims) for dims in self.terms)
        return self.of(total) if self.is_size else self.offset + self.factor * math.pow(total, self.power)

    def of(self, total: int) -> int:
        """The size for a product, or a sum of such."""
        assert isinstance(self.factor, Fraction), "the number is not a size"
        return int(self.offset) + self.factor.numerator * (total + self.shift) // self.factor.denominator

    @property
    def is_size(self) -> bool:
        """Whether the value is computed as an integer."""
        return isinstance(self.factor, Fraction)

    @property
    def is_integer(self) -> bool:
        """Whether the value is an integer for all sizes."""
        return self.power == 1 and self.offset == int(self.offset) and self.factor == int(self.factor)

    def code(self, product: str) -> str:
        """The value as a Python expression of the product of the sizes, itself an expression of an int.

        Sizes of 0 give NaN where Python would divide by zero.
        """
        offset, factor = (int(n) if self.is_integer else n for n in (self.offset, self.factor))
        if self.power < 0:
            product = f"({product} or math.nan)"
        elif " " in product and (self.power == 0.5 or self.others):
            product = f"({product})"
        power = {1: "", -1: "", 0.5: " ** 0.5", -0.5: " ** -0.5"}[self.power]
        operator = "/" if self.power == -1 else "*"
        scaled = f"{product}{power}" if factor == 1 and operator == "*" else f"{factor!r} {operator} {product}{power}"
        return f"{offset!r} + {scaled}" if offset else scaled

    def host_code(self, arguments: Sequence[str]) -> str:
        """The value as `kernel_fn` computes it from its arguments, given their names."""
        total = " + ".join(" * ".join(_factor_code(arguments, size) for size in dims) for dims in self.terms)
        return self.size_code(total) if self.is_size else self.code(total)

    def size_code(self, total: str) -> str:
        """The size as a Python expression of that of a product, or of a sum of such. A factor of 1 / 12 is `// 12`."""
        factor = self.factor
        assert isinstance(factor, Fraction), "the number is not a size"
        if not factor:
            return str(int(self.offset))
        total = _plus(total, self.shift)
        if factor != 1 and (self.others or self.shift):
            total = f"({total})"
        total = total if factor.numerator == 1 else f"{total} * {factor.numerator}"
        total = total if factor.denominator == 1 else f"{total} // {factor.denominator}"
        return _plus(total, int(self.offset))


def _plus(code: str, number: int) -> str:
    return f"{code} {'-' if number < 0 else '+'} {abs(number)}" if number else code


def size_value(size: Place | SizeLaw, shapes: Sequence[Sequence[int]]) -> int:
    """A factor of a product of sizes, for arguments of these shapes."""
    return int(size.value(shapes)) if isinstance(size, SizeLaw) else shapes[size[0]][size[1]]


def _factor_code(arguments: Sequence[str], size: Place | SizeLaw) -> str:
    if isinstance(size, SizeLaw):
        code = size.host_code(arguments)
        return f"({code})" if " " in code else code
    return place_code(arguments[size[0]], size[1])


def place_code(name: str, dim: int) -> str:
    """The code of a size of an argument, or of the number that it is."""
    return name if dim < 0 else f"{name}.shape[{dim}]"


@dataclass(frozen=True)
class EqualSizes:
    """Dimensions of equal sizes, or of sizes in the traced proportion; of those of `ones` a single one may be 1."""

    places: tuple[Place, ...]
    ones: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class PassedSize:
    """A size that a launch is passed as a number: the argument's place."""

    index: int


Size = int | SizeLaw | PassedSize
"""A size in a view: as it was traced, which other inputs may have otherwise, or what it is for all inputs."""


def size_code(size: Size, arguments: Sequence[str]) -> str:
    """The size as `kernel_fn` computes it from its arguments, given their names."""
    if isinstance(size, SizeLaw):
        return size.host_code(arguments)
    return arguments[size.index] if isinstance(size, PassedSize) else str(size)

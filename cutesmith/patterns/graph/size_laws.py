"""Numbers that follow the sizes of arguments, such as the 1 / V of label smoothing, or the sizes in a view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Dims = tuple[tuple[int, int], ...]
"""(argument, dimension) pairs; the dimension -1 stands for the value of an argument that is an integer."""


@dataclass(frozen=True)
class SizeLaw:
    """offset + factor * (product of the sizes of `dims`, plus those of each of `others`) ** power.

    `dims` are (argument, dimension) pairs. A size is an integer, and has a fraction as its factor: 0 where it follows
    no other size.
    """

    offset: float
    factor: float | Fraction
    dims: Dims
    power: float
    others: tuple[Dims, ...] = ()

    @classmethod
    def constant(cls, value: int) -> SizeLaw:
        """A size that is the same for all inputs."""
        return cls(value, Fraction(0), (), 1)

    @property
    def terms(self) -> tuple[Dims, ...]:
        """The products of sizes that are added up."""
        return (self.dims, *self.others) if self.factor else ()

    @property
    def places(self) -> frozenset[tuple[int, int]]:
        """The (argument, dimension) pairs that it follows."""
        return frozenset(place for dims in self.terms for place in dims)

    def value(self, shapes: Sequence[Sequence[int]]) -> float:
        """The number for arguments of these shapes."""
        total = sum(math.prod(shapes[argument][dim] for argument, dim in dims) for dims in self.terms)
        if isinstance(self.factor, Fraction):
            return int(self.offset) + self.factor.numerator * total // self.factor.denominator
        return self.offset + self.factor * math.pow(total, self.power)

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
        total = " + ".join(" * ".join(place_code(arguments[index], dim) for index, dim in dims) for dims in self.terms)
        return self._integer_code(total, self.factor) if isinstance(self.factor, Fraction) else self.code(total)

    def _integer_code(self, total: str, factor: Fraction) -> str:
        """A factor of 1 / 12 is `// 12`: the function takes no sizes that leave a rest."""
        if not factor:
            return str(int(self.offset))
        if factor != 1 and self.others:
            total = f"({total})"
        total = total if factor.numerator == 1 else f"{total} * {factor.numerator}"
        total = total if factor.denominator == 1 else f"{total} // {factor.denominator}"
        return f"{total} + {int(self.offset)}".replace("+ -", "- ") if self.offset else total


def place_code(name: str, dim: int) -> str:
    """The code of a size of an argument, or of the number that it is."""
    return name if dim < 0 else f"{name}.shape[{dim}]"


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

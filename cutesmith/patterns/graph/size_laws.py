"""Numbers that follow the sizes of arguments, such as the 1 / V of label smoothing over V classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Dims = tuple[tuple[int, int], ...]  # (argument, dimension) pairs


@dataclass(frozen=True)
class SizeLaw:
    """offset + factor * (product of the sizes of `dims`) ** power; `dims` are (argument, dimension) pairs."""

    offset: float
    factor: float
    dims: Dims
    power: float

    def value(self, shapes: Sequence[Sequence[int]]) -> float:
        """The constant for arguments of these shapes."""
        product = math.prod(shapes[argument][dim] for argument, dim in self.dims)
        return self.offset + self.factor * math.pow(product, self.power)

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
        elif self.power == 0.5 and " " in product:
            product = f"({product})"
        power = {1: "", -1: "", 0.5: " ** 0.5", -0.5: " ** -0.5"}[self.power]
        operator = "/" if self.power == -1 else "*"
        scaled = f"{product}{power}" if factor == 1 and operator == "*" else f"{factor!r} {operator} {product}{power}"
        return f"{offset!r} + {scaled}" if offset else scaled

    def host_code(self, arguments: Sequence[str]) -> str:
        """The value as `kernel_fn` computes it from its arguments, given their names."""
        return self.code(" * ".join(f"{arguments[index]}.shape[{dim}]" for index, dim in self.dims))

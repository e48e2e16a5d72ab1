"""Large arrays that one wave, or launch, has after another: kept memory is cleared much faster than new one is given.

Measured on an EPYC 9004: new memory takes 8 ms for 64 MB when it is first touched, kept memory 1 ms to clear. A wave of
32 Hopper blocks has 150 MB of shared memory and shadow cells.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from cutesmith.emulator.program.abi import Array

_MOST_KEPT = 128 << 20  # bytes of one array; larger ones are rare, and would be held for good


class LentArrays:
    """Arrays by name: to take one ends the use of what was taken under its name before."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: Any, fill: int | None = 0) -> Array:
        """An array of that shape and type, all of whose bytes are `fill`, or anything with None."""
        size = prod(shape) * np.dtype(dtype).itemsize
        if size > _MOST_KEPT:  # zeros cost nothing until they are touched
            return np.zeros(shape, dtype) if not fill else np.full(size, fill, np.uint8).view(dtype).reshape(shape)
        held = self._kept.get(name)
        if held is None or len(held) < size:
            held = self._kept[name] = np.full(size, fill, np.uint8) if fill else np.zeros(size, np.uint8)
        elif fill is not None:
            held[:size] = fill
        lent: Array = held[:size].view(dtype).reshape(shape)
        return lent

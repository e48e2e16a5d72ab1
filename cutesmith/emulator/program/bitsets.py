"""Sets of registers as Python integers: union, intersection and difference of thousands of names in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress

_DIGITS = bytes(byte & 1 for byte in range(256))  # "0" and "1" to 0 and 1


class Numbering:
    """Gives every register its bit."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._names: list[str] = []
        self._sets: dict[int, frozenset[str]] = {}

    def mask(self, names: Iterable[str]) -> int:
        """The set of these registers."""
        mask = 0
        for name in names:
            if name not in self._bits:
                self._bits[name] = 1 << len(self._names)
                self._names.append(name)
            mask |= self._bits[name]
        return mask

    def names(self, mask: int) -> frozenset[str]:
        """The registers of a set."""
        found = self._sets.get(mask)
        if found is None:
            found = self._sets[mask] = frozenset(self.ordered(mask))
        return found

    def ordered(self, mask: int) -> list[str]:
        """The registers of a set, in the order of their first use."""
        return list(compress(self._names, f"{mask:b}"[::-1].encode().translate(_DIGITS)))

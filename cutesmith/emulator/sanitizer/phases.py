"""What arrivals at mbarriers and barriers hand over to those who wait: it can be acquired once their phase is over."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from cutesmith.emulator.program.abi import Array


class Phases:
    """Of each object, by the first block of its cluster and a key: int32 (columns,), up to which time is known."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, Hashable], Array] = {}
        self._over: dict[tuple[int, Hashable], Array] = {}

    @property
    def any_over(self) -> bool:
        """Whether anything was released to a phase that is over."""
        return bool(self._over)

    def release(self, first: int, key: Hashable, known: Array) -> None:
        """An arrival hands over what is `known`; the array is kept."""
        before = self._open.get((first, key))
        self._open[first, key] = known if before is None else np.maximum(before, known)

    def complete(self, first: int, key: Hashable) -> None:
        """The phase is over: what was released to it can be acquired."""
        if (given := self._open.pop((first, key), None)) is not None:
            before = self._over.get((first, key))
            self._over[first, key] = given if before is None else np.maximum(before, given)

    def over(self, first: int, key: Hashable) -> Array | None:
        """What those who wait for the object know then; None where nothing was released to it."""
        return self._over.get((first, key))

    def widen(self, columns: int) -> None:
        """More columns from now on."""
        for phases in (self._open, self._over):
            phases.update({key: widened(known, columns) for key, known in phases.items()})


def widened(known: Array, columns: int) -> Array:
    """The same with so many columns, those that are new 0."""
    wider: Array = np.zeros((*known.shape[:-1], columns), np.int32)
    wider[..., : known.shape[-1]] = known
    return wider

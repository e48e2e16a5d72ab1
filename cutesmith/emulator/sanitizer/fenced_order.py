"""What is ordered before requests to engines: writes of threads that a `fence.proxy.async` has covered.

The fence makes all that its thread knows of visible to the async proxy, wherever it stands on the way from a write to
the request: in the thread that wrote, in the one that asks, or in one between. So this knowledge spreads as that of
clocks.py does, but it begins with fences alone: not even a thread's own writes are in it before.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.sanitizer.phases import Phases


class FencedOrder:
    """For each cluster with fences int32 [lanes][lanes]: up to which time its requests see what each lane wrote.

    Clusters are named by their first block; rows are lanes counted from the cluster's first.
    """

    def __init__(self, blocks: int, width: int) -> None:
        self._width = width
        self._known: dict[int, Array] = {}
        self.pointers = np.zeros(blocks, np.int64)
        self._phases = Phases()

    @property
    def in_use(self) -> bool:
        """Whether any lane has executed the fence."""
        return bool(self._known)

    def fence(self, first: int, rows: Array, known: Array) -> None:
        """These lanes have executed the fence; `known` (n, lanes) is what they knew of."""
        if first not in self._known:
            self._known[first] = np.zeros((self._width, self._width), np.int32)
            self.pointers[first] = self._known[first].ctypes.data
        self._learn(first, rows, known)

    def alike(self, first: int, rows: Array) -> bool:
        """Whether the requests of these lanes see the same."""
        known = self._known.get(first)
        return known is None or bool((known[rows] == known[rows[0]]).all())

    def meet(self, first: int, rows: Array | slice) -> None:
        """These lanes have met at a barrier."""
        if (known := self._known.get(first)) is not None:
            rows = rows if isinstance(rows, slice) else as_slice(rows)
            known[rows] = known[rows].max(axis=0)

    def release(self, first: int, rows: Array, key: Hashable) -> None:
        """These lanes have arrived at an object."""
        if (known := self._known.get(first)) is not None:
            self._phases.release(first, key, known[as_slice(rows)].max(axis=0))

    def complete(self, first: int, key: Hashable) -> None:
        """The phase of an object is over: what was released to it can be acquired."""
        self._phases.complete(first, key)

    def acquire(self, first: int, rows: Array, key: Hashable) -> None:
        """These lanes have waited for an object."""
        if (given := self._phases.over(first, key)) is not None:
            self._learn(first, rows, given)

    def _learn(self, first: int, rows: Array, known: Array) -> None:
        learn(self._known[first], rows, known)


def learn(whole: Array, rows: Array, known: Array) -> None:
    """Raise some rows of a matrix to at least what is `known`, (n, columns) or (columns,)."""
    at = as_slice(rows)
    if isinstance(at, slice):
        np.maximum(whole[at], known, out=whole[at])
    else:
        whole[at] = np.maximum(whole[at], known)


def as_slice(rows: Array) -> Array | slice:
    """The same rows as a slice where that is possible: what it selects is not copied."""
    first, last = int(rows[0]), int(rows[-1])
    ascending = last - first + 1 == len(rows) and bool((rows[1:] > rows[:-1]).all())
    return slice(first, last + 1) if ascending else rows

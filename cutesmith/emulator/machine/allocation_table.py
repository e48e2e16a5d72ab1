"""The table of a launch's allocations that native code searches, with the shadow cells of global memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.sanitizer.layout import ALLOCATION_WORDS, GLOBAL_CHUNK
from cutesmith.emulator.sanitizer.layout import Allocation as Word
from cutesmith.emulator.state.allocations import Allocation
from cutesmith.emulator.state.lent_arrays import LentArrays

MOST_SHADOW_BYTES = 1 << 30
"""Shadows of global memory: the largest allocations that do not fit any more are not checked for races."""
_CELL_BYTES = 8


@dataclass
class AllocationTable:
    """`words`: int64 (n, ALLOCATION_WORDS), one empty entry without allocations; the shadows are kept alive with it.

    `unchecked` names the allocations whose shadows would be too large.
    """

    words: Array
    unchecked: tuple[str, ...] = ()
    shadows: list[Array] = field(default_factory=list)

    @classmethod
    def of(cls, allocations: Sequence[Allocation], lent: LentArrays, *, shadowed: bool) -> AllocationTable:
        """The table of these allocations; `shadowed`: with cells of their writers and readers, the smallest first."""
        table = cls(np.zeros((max(1, len(allocations)), ALLOCATION_WORDS), np.int64))
        for row, allocation in zip(table.words, allocations, strict=False):
            row[Word.START], row[Word.END] = allocation.address, allocation.end
            row[Word.HOST_DELTA] = allocation.host - allocation.address
            row[Word.GRANULE] = allocation.granule
        left = MOST_SHADOW_BYTES
        for index in sorted(range(len(allocations)), key=lambda index: allocations[index].size) if shadowed else ():
            left -= table._shadow(allocations[index], table.words[index], left, lent)
        return table

    def _shadow(self, allocation: Allocation, entry: Array, left: int, lent: LentArrays) -> int:
        """Cells of writers and readers for the allocation; how many bytes they take."""
        chunks = allocation.size // GLOBAL_CHUNK + 1
        cells = chunks * GLOBAL_CHUNK >> allocation.granule
        size = 2 * _CELL_BYTES * (chunks + cells)
        if allocation.initialised is not None:
            entry[Word.INITIALISED] = allocation.initialised.ctypes.data
            entry[Word.SHADOWED] = 1
        if size > left:
            self.unchecked += (allocation.name,)
            return 0
        for count, fill, words in (
            (chunks, 0, (Word.CHUNK_WRITERS, Word.CHUNK_READERS)),
            (cells, None, (Word.WRITERS, Word.READERS)),
        ):
            for word in words:
                array = lent.take(f"cells {len(self.shadows)}", (count,), np.uint64, fill)
                self.shadows.append(array)
                entry[word] = array.ctypes.data
        entry[Word.SHADOWED] = 1
        return size

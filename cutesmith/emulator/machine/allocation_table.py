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
        if shadowed and allocations:
            table._add_shadows(allocations, lent)
        return table

    def _add_shadows(self, allocations: Sequence[Allocation], lent: LentArrays) -> None:
        """Cells of writers and readers for the allocations, the smallest first: one array of each kind for all of them.

        A network has hundreds of allocations, each of which every launch would otherwise ask for arrays of its own.
        """
        sizes = np.array([allocation.size for allocation in allocations], np.int64)
        chunks = sizes // GLOBAL_CHUNK + 1
        cells = chunks * GLOBAL_CHUNK >> self.words[:, Word.GRANULE]
        taken = 2 * _CELL_BYTES * (chunks + cells)
        smallest = np.argsort(sizes, kind="stable")
        fits = np.zeros(len(sizes), bool)
        fits[smallest] = np.cumsum(taken[smallest]) <= MOST_SHADOW_BYTES
        self.unchecked = tuple(allocations[index].name for index in smallest if not fits[index])
        self.words[fits, Word.SHADOWED] = 1
        for index, allocation in enumerate(allocations):
            if allocation.initialised is not None:
                self.words[index, Word.INITIALISED] = allocation.initialised.ctypes.data
                self.words[index, Word.SHADOWED] = 1
        for counts, fill, words in (
            (chunks[fits], 0, (Word.CHUNK_WRITERS, Word.CHUNK_READERS)),
            (cells[fits], None, (Word.WRITERS, Word.READERS)),
        ):
            offsets = np.cumsum(counts) - counts
            for word in words:
                array = lent.take(f"cells of {word.name}", (int(counts.sum()),), np.uint64, fill)
                self.shadows.append(array)
                self.words[fits, word] = array.ctypes.data + _CELL_BYTES * offsets

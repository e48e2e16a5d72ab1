"""The cells of shared memory: one for each 16 bytes as long as these are equal, one for each byte where they differ.

Native code keeps them (chunk_checks.py). The cells of bytes need not be cleared for a new wave.
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.program.abi import SHARED_UNIT, Array
from cutesmith.emulator.sanitizer.chunk_checks import APART
from cutesmith.emulator.sanitizer.layout import Sanitizer
from cutesmith.emulator.state.lent_arrays import LentArrays
from cutesmith.emulator.state.wave import Wave

CHUNK = SHARED_UNIT


class SharedCells:
    """Cells of a wave's shared memory as arrays: of chunks (blocks * bytes / 16,), and of bytes (blocks * bytes,).

    `writers`, `readers`: uint64; `warps`: uint32, which warps have read where the reader says SEVERAL.
    """

    def __init__(self, wave: Wave, lent: LentArrays) -> None:
        size = wave.shared.size
        kinds = {"writers": np.uint64, "readers": np.uint64, "warps": np.uint32}
        self._of_chunks = {name: lent.take(f"{name} of chunks", (size // CHUNK,), kind) for name, kind in kinds.items()}
        self._of_bytes = {name: lent.take(name, (size,), kind, fill=None) for name, kind in kinds.items()}
        self._shape = wave.shared.shape
        for word, array in (
            (Sanitizer.SHARED_WRITERS, self._of_bytes["writers"]),
            (Sanitizer.SHARED_READERS, self._of_bytes["readers"]),
            (Sanitizer.SHARED_READING_WARPS, self._of_bytes["warps"]),
            (Sanitizer.CHUNK_WRITERS, self._of_chunks["writers"]),
            (Sanitizer.CHUNK_READERS, self._of_chunks["readers"]),
            (Sanitizer.CHUNK_READING_WARPS, self._of_chunks["warps"]),
        ):
            wave.context[word] = array.ctypes.data

    def write(self, start: int, size: int, cell: int) -> None:
        """Bytes in a row have been written: `cell` is their writer, readers stay."""
        if start % CHUNK == 0 and size % CHUNK == 0:
            chunks = slice(start // CHUNK, (start + size) // CHUNK)
            writers = self._of_chunks["writers"][chunks]
            if writers.max(initial=0) != APART:  # the largest cell
                writers[:] = np.uint64(cell)
                return
        self._set_apart(np.arange(start // CHUNK, (start + size - 1) // CHUNK + 1))
        self._of_bytes["writers"][start : start + size] = np.uint64(cell)

    def write_rows(self, starts: Array, size: int, cells: Array) -> None:
        """The same for rows of `size` bytes, at most a chunk and each within one, with a cell each."""
        chunks, writers = starts // CHUNK, self._of_chunks["writers"]
        apart = writers[chunks] == np.uint64(APART)
        if size == CHUNK:
            writers[chunks[~apart]] = cells[~apart]
            starts, cells = starts[apart], cells[apart]
        else:
            self._set_apart(chunks[~apart])
        if len(starts):
            self._of_bytes["writers"].reshape(-1, size)[starts // size] = cells[:, None]

    def of_block(self, block: int) -> tuple[Array, Array]:
        """uint64 (bytes,) each: the writers and the readers of every byte of a block's shared memory."""
        size = self._shape[1]
        self._set_apart(np.arange(block * size // CHUNK, (block + 1) * size // CHUNK))
        bytes_of_block = slice(block * size, (block + 1) * size)
        return self._of_bytes["writers"][bytes_of_block], self._of_bytes["readers"][bytes_of_block]

    def _set_apart(self, chunks: Array) -> None:
        whole = chunks[self._of_chunks["writers"][chunks] != np.uint64(APART)]
        for name, cells in self._of_chunks.items():
            self._of_bytes[name].reshape(-1, CHUNK)[whole] = cells[whole][:, None]
        self._of_chunks["writers"][whole] = np.uint64(APART)

"""Files of the exchange folder that stay mapped in this process: a case finds the pages of the case before.

A page costs more to make than to fill. On one core of a busy machine 268 MB went into a new file in 0.6 to 1.6 s, into
one that was mapped already in 0.1 s; reading is similar.
"""

from __future__ import annotations

import mmap
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from cutesmith.errors import UnavailableError
from cutesmith.judge.transfer.given_outputs import open_plain

KEPT_BYTES = 1 << 30  # a larger file is mapped for one copy: what stays counts as memory of the process


@dataclass(frozen=True)
class _Mapping:
    """The bytes of a file that can be no other's: `file` is its device and inode."""

    file: tuple[int, int]
    bytes: torch.Tensor


class MappedFiles:
    """What this process has mapped, by path, for writing and for reading."""

    def __init__(self) -> None:
        self._mappings: dict[tuple[str, bool], _Mapping] = {}

    def to_write(self, path: Path, size: int) -> torch.Tensor:
        """The first `size` bytes of a file that is made, or made longer, where need be; what lies behind them stays.

        uint8[size] on the CPU. Raises UnavailableError when there is no room.
        """
        return self._bytes(path, size, write=True)

    def to_read(self, path: Path, size: int) -> torch.Tensor:
        """The first `size` bytes of a regular file to which no link leads; as the file changes, so do they.

        uint8[size] on the CPU, not to be written to. Raises OSError, and ValueError when the file is shorter.
        """
        return self._bytes(path, size, write=False)

    def forget(self) -> None:
        """Unmap every file that nothing reads any more."""
        self._mappings.clear()

    def _bytes(self, path: Path, size: int, *, write: bool) -> torch.Tensor:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600) if write else open_plain(path)
        try:
            status = os.fstat(descriptor)
            known, file = self._mappings.get((str(path), write)), (status.st_dev, status.st_ino)
            if write and status.st_size < size:
                _lengthen(descriptor, path, size)
            if known is None or known.file != file or known.bytes.numel() < size:
                self._mappings.pop((str(path), write), None)
                known = _Mapping(file, _mapped(descriptor, size, write=write))
                if size <= KEPT_BYTES:
                    self._mappings[str(path), write] = known
            return known.bytes[:size]
        finally:
            os.close(descriptor)


def _lengthen(descriptor: int, path: Path, size: int) -> None:
    """Take the room now: a file without it ends the process when the missing page is written."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        message = f"no room for {size / 2**20:.0f} MiB of a tensor between the judge's processes: {error.strerror}"
        hint = f"Free memory or disk under {path.parent}, or return fewer elements from get_inputs()."
        raise UnavailableError(message, hint=hint) from error


def _mapped(descriptor: int, size: int, *, write: bool) -> torch.Tensor:
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
    pages = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, protection)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")  # nothing writes to it
        return torch.frombuffer(pages, dtype=torch.uint8)


FILES = MappedFiles()
"""Those of this process."""

"""Tensors too large for a file of their own: one process gives them piece by piece, the other takes them.

A page in memory costs more to make than to fill: 2 GiB went through a new file of /dev/shm in 7.0 s, from memory to
memory, and in pieces in 1.1 to 1.2 s. Nor has every machine room for several tensors of 6 GB, such as those of
KernelBench, beside what the processes hold. The parent carries the pieces (`pieces`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cutesmith.judge.crossing import tensors
from cutesmith.judge.crossing.mapped_files import FILES
from cutesmith.judge.crossing.pieces import PIECE_BYTES, WHOLE, piece_file
from cutesmith.judge.crossing.tensors import Description

Request = dict[str, Any]
ODD = 0x9E3779B97F4A7C15  # so that pieces in another order give another sum


class Relay:
    """One process's end: `offered` waits until the parent asks for it, `taken` is on the device.

    `largest`: bytes of a tensor that goes through a file of its own.
    """

    def __init__(self, largest: int = WHOLE) -> None:
        self.largest = largest
        self.offered: dict[str, torch.Tensor] = {}  # by the file that a smaller one would have
        self.taken: dict[str, torch.Tensor] = {}  # bytes
        self._weights: torch.Tensor | None = None

    def write_value(self, value: Any, path: Path) -> Description:
        """As `tensors.write_value`."""
        return self.write_tensor(value, path) if isinstance(value, torch.Tensor) else tensors.write_value(value, path)

    def write_tensor(self, tensor: torch.Tensor, path: Path) -> Description:
        """The description of a tensor, which is written as a file or, if it is large, offered until it was given."""
        self.offered.pop(str(path), None)
        size = _size_of(tensors.describe_layout(tensor))
        if size <= self.largest:
            return tensors.write_tensor(tensor, path)
        self.offered[str(path)] = tensor.detach()
        return {**tensors.describe_layout(tensor), "file": str(path), "bytes": size}

    def give(self, request: Request) -> dict[str, Any]:
        """Write one piece of an offered tensor; the last piece ends the offer, unless "keep"."""
        tensor, begin = self.offered[request["file"]], request["begin"]
        piece = _bytes_spanned(tensor)[begin : begin + PIECE_BYTES]
        FILES.to_write(piece_file(request["file"], begin), piece.numel()).copy_(piece)
        if not request["keep"] and begin + piece.numel() == _size_of(tensors.describe_layout(tensor)):
            del self.offered[request["file"]]
        return {}

    def take(self, request: Request, device: str) -> dict[str, Any]:
        """Read one piece of a described tensor.

        Raises OSError and ValueError for a file that is not what it was, and for a size that is not that of the shape:
        nothing would be written to the rest, where results of this process may have been.
        """
        description, begin = request["tensor"], request["begin"]
        if (size := _size_of(description)) != description["bytes"]:
            raise ValueError(f"{description['bytes']} bytes cannot be a tensor of {size}")
        if begin == 0:
            self.taken[description["file"]] = torch.empty(size, dtype=torch.uint8, device=device)
        whole = self.taken[description["file"]][begin : begin + PIECE_BYTES]
        whole.copy_(FILES.to_read(piece_file(description["file"], begin), whole.numel()))
        return {}

    def bytes_of(self, description: Description) -> torch.Tensor | None:
        """The bytes that a described tensor's strides span, to be copied: those of its file, or those taken.

        Raises OSError and ValueError where they are not what they should be.
        """
        size = _size_of(description)
        if size <= self.largest:
            return tensors.read_bytes(description)
        taken = self.taken.get(description["file"])
        if taken is None or taken.numel() != size:
            raise ValueError(f"{size} bytes were to be taken, {0 if taken is None else taken.numel()} were")
        return taken

    def read_tensor(self, description: Description, device: str) -> torch.Tensor:
        """As `tensors.read_tensor`."""
        return tensors.Guarded.holding(description, self.bytes_of(description), device).tensor

    def sums(self, descriptions: list[Description]) -> list[str]:
        """Of each tensor that was taken a number that differs, all but surely, where a byte does; else ""."""
        return [self._sum_of(d) if _size_of(d) > self.largest else "" for d in descriptions]

    def _sum_of(self, description: Description) -> str:
        """Every 8 bytes times a random number, modulo 2^64; the same numbers for all that this end takes."""
        whole, total = self.bytes_of(description), 0
        assert whole is not None, "what is large is not empty"
        if self._weights is None:
            self._weights = torch.empty(PIECE_BYTES // 8, dtype=torch.int64, device=whole.device).random_()
        for words in _words(whole):
            products = words * self._weights[: words.numel()]
            total = (total * ODD + int(products.sum().item())) % (1 << 64)
        return f"{total:016x}"


def _size_of(description: Description) -> int:
    span = tensors.span_of(description["shape"], description["stride"])
    return span * tensors.dtype_of(description).itemsize


def _bytes_spanned(tensor: torch.Tensor) -> torch.Tensor:
    span = tensors.span_of(tensor.shape, tensor.stride())
    return tensor.as_strided((span,), (1,)).view(torch.uint8)


def _words(whole: torch.Tensor) -> Iterator[torch.Tensor]:
    """Its bytes as 64-bit words, PIECE_BYTES at a time, the last ones filled up with zeros."""
    for begin in range(0, whole.numel(), PIECE_BYTES):
        piece = whole[begin : begin + PIECE_BYTES]
        if missing := -piece.numel() % 8:
            piece = torch.cat([piece, piece.new_zeros(missing)])
        yield piece.view(torch.int64)

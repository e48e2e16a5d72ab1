"""Tensors too large for a file of their own: one process gives them chunk by chunk, the other takes them.

A page in memory costs more to make than to fill: 2 GiB went through a new file of /dev/shm in 7.0 s, from memory to
memory, and in chunks in 1.1 to 1.2 s. Nor has every machine room for several tensors of 6 GB, such as those of
KernelBench, beside what the processes hold. The parent carries the chunks (`chunks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.chunks import CHUNK_BYTES, chunk_file
from cutesmith.judge.transfer.mapped_files import FILES
from cutesmith.judge.transfer.requests import WHOLE, Give, Take, TensorFile, Value

ODD = 0x9E3779B97F4A7C15  # so that chunks in another order give another sum


class Transfer:
    """One process's end: `offered` waits until the parent asks for it, `taken` is on the device, which torch names.

    `largest`: bytes of a tensor that goes through a file of its own.
    """

    def __init__(self, largest: int = WHOLE, device: str = "cpu") -> None:
        self.largest, self.device = largest, device
        self.offered: dict[str, torch.Tensor] = {}  # by the file that a smaller one would have
        self.taken: dict[str, torch.Tensor] = {}  # bytes
        self._weights: torch.Tensor | None = None

    def write_value(self, value: Any, path: Path) -> Value:
        """As `tensors.write_value`."""
        return self.write_tensor(value, path) if isinstance(value, torch.Tensor) else tensors.write_value(value, path)

    def write_tensor(self, tensor: torch.Tensor, path: Path) -> TensorFile:
        """The description of a tensor, which is written as a file or, if it is large, offered until it was given."""
        self.offered.pop(str(path), None)
        described = tensors.describe_file(tensor, path)
        if described.bytes <= self.largest:
            return tensors.write_tensor(tensor, path)
        self.offered[described.file] = tensor.detach()
        return described

    def give(self, request: Give) -> None:
        """Write one chunk of an offered tensor; the last chunk ends the offer, unless `keep`."""
        whole = tensors.spanned(self.offered[request.file])
        chunk = whole[request.begin : request.begin + CHUNK_BYTES]
        FILES.to_write(chunk_file(request.file, request.begin), chunk.numel()).copy_(chunk)
        if not request.keep and request.begin + chunk.numel() == whole.numel():
            del self.offered[request.file]

    def take(self, request: Take) -> str:
        """Read one chunk of a described tensor; the reply says that nothing is wrong.

        Raises OSError and ValueError for a file that is not what it was, and for a size that is not that of the shape:
        nothing would be written to the rest, where results of this process may have been.
        """
        tensor, begin = request.tensor, request.begin
        if (size := tensors.bytes_spanned(tensor)) != tensor.bytes:
            raise ValueError(f"{tensor.bytes} bytes cannot be a tensor of {size}")
        if begin == 0:
            self.taken[tensor.file] = torch.empty(size, dtype=torch.uint8, device=self.device)
        whole = self.taken[tensor.file][begin : begin + CHUNK_BYTES]
        whole.copy_(FILES.to_read(chunk_file(tensor.file, begin), whole.numel()))
        return ""

    def bytes_of(self, description: TensorFile) -> torch.Tensor | None:
        """The bytes that a described tensor's strides span, to be copied: those of its file, or those taken.

        Raises OSError and ValueError where they are not what they should be.
        """
        size = tensors.bytes_spanned(description)
        if size <= self.largest:
            return tensors.read_bytes(description)
        taken = self.taken.get(description.file)
        if taken is None or taken.numel() != size:
            raise ValueError(f"{size} bytes were to be taken, {0 if taken is None else taken.numel()} were")
        return taken

    def read_tensor(self, description: TensorFile) -> torch.Tensor:
        """As `tensors.read_tensor`."""
        return tensors.Guarded.holding(description, self.bytes_of(description), self.device).tensor

    def sums(self, descriptions: Sequence[TensorFile]) -> tuple[str, ...]:
        """A checksum of each tensor that was taken; empty for those that came as files."""
        return tuple(self._sum_of(d) if tensors.bytes_spanned(d) > self.largest else "" for d in descriptions)

    def _sum_of(self, description: TensorFile) -> str:
        """Every 8 bytes times a random number, modulo 2^64; the same numbers for all that this end takes."""
        whole, total = self.bytes_of(description), 0
        assert whole is not None, "what is large is not empty"
        if self._weights is None:
            self._weights = torch.empty(CHUNK_BYTES // 8, dtype=torch.int64, device=whole.device).random_()
        for begin in range(0, whole.numel(), CHUNK_BYTES):
            chunk = whole[begin : begin + CHUNK_BYTES]
            if missing := -chunk.numel() % 8:
                chunk = torch.cat([chunk, chunk.new_zeros(missing)])
            words = chunk.view(torch.int64)
            total = (total * ODD + int((words * self._weights[: words.numel()]).sum().item())) % (1 << 64)
        return f"{total:016x}"

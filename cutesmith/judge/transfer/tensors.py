"""Tensors as raw files between processes, and tensors between guard zones inside one.

`requests` has the descriptions that travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from cutesmith.judge.transfer.mapped_files import FILES
from cutesmith.judge.transfer.requests import Scalar, TensorFile, TensorLayout, Value
from cutesmith.problems.arguments import decoded, encoded, gathered, is_option

GUARD_BYTES = 4096
ALIGNMENT_BYTES = {"cuda": 256, "cpu": 64}  # what the allocators guarantee
NAN_POISON, LARGE_POISON = 0xFF, 0x5A  # all-ones is NaN in every float type; 0x5A5A is a large finite number

POSING = ("fake", "emulator")  # devices of ours whose tensors pose as CUDA tensors


def torch_device(device: str) -> str:
    """What torch is asked for on one of our devices."""
    return "cuda" if device in POSING else device


def span_of(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements of storage a layout reaches over: 0 for an empty tensor."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride))


def describe_layout(tensor: torch.Tensor) -> TensorLayout:
    """The description of a tensor without its bytes."""
    alignment = ALIGNMENT_BYTES.get(tensor.device.type)
    misaligned = tensor.data_ptr() % alignment if alignment else 0
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorLayout(dtype, tuple(tensor.shape), tuple(tensor.stride()), misaligned)


def describe_file(tensor: torch.Tensor, path: Path) -> TensorFile:
    """The description of a tensor whose bytes that file holds, or will hold."""
    size = span_of(tensor.shape, tensor.stride()) * tensor.element_size()
    return TensorFile(**vars(describe_layout(tensor)), file=str(path), bytes=size)


def write_tensor(tensor: torch.Tensor, path: Path) -> TensorFile:
    """Write the bytes that the tensor's strides span; returns the description, with how many of the file they are."""
    described = describe_file(tensor, path)
    if described.bytes:
        FILES.to_write(path, described.bytes).copy_(spanned(tensor))
    return described


def spanned(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes that the tensor's strides span, gaps included."""
    return tensor.detach().as_strided((span_of(tensor.shape, tensor.stride()),), (1,)).view(torch.uint8)


def describe_scalar(value: Any) -> Scalar:
    """A Python bool, int or float, or an option, exactly."""
    if not isinstance(value, (bool, int, float)):
        return Scalar("option", encoded(value))
    return Scalar(type(value).__name__, value.hex() if isinstance(value, float) else repr(value))


def write_value(value: Any, path: Path) -> Value:
    """A tensor with its file, or what is not a tensor."""
    return write_tensor(value, path) if isinstance(value, torch.Tensor) else describe_scalar(value)


def read_scalar(scalar: Scalar) -> Any:
    """What a description that is not of a tensor stands for."""
    readers: dict[str, Any] = {
        "float": float.fromhex,
        "int": int,
        "bool": lambda text: text == "True",
        "option": decoded,
    }
    return readers[scalar.type](scalar.text)


def dtype_of(layout: TensorLayout) -> torch.dtype:
    """The torch dtype that a description names."""
    dtype: torch.dtype = getattr(torch, layout.dtype)
    return dtype


def bytes_spanned(layout: TensorLayout) -> int:
    """How many bytes the strides of a described tensor span."""
    return span_of(layout.shape, layout.stride) * dtype_of(layout).itemsize


def empty_like(layout: TensorLayout) -> torch.Tensor:
    """A tensor of that layout on the GPU, whose values are not set."""
    return torch.empty_strided(layout.shape, layout.stride, dtype=dtype_of(layout), device="cuda")


def read_tensor(description: TensorFile, device: str, *, zone_bytes: int = GUARD_BYTES) -> torch.Tensor:
    """A described tensor on `device`, strides kept, in storage of its own; `zone_bytes` as of `Guarded`."""
    return Guarded.holding(description, read_bytes(description), device, zone_bytes=zone_bytes).tensor


def read_bytes(description: TensorFile) -> torch.Tensor | None:
    """The bytes that a described tensor's strides span, on the CPU, to be copied; None when there are none."""
    size = bytes_spanned(description)
    return FILES.to_read(Path(description.file), size) if size else None


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """Where it is neither NaN nor infinite; PyTorch's `isfinite` knows no 8-bit floats."""
    return (tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor).isfinite()


def copy_of(value: Any) -> Any:
    """A copy with the same strides, gaps included."""
    if not isinstance(value, torch.Tensor):
        return value
    span = span_of(value.shape, value.stride())
    return value.as_strided((span,), (1,)).clone().as_strided(value.shape, value.stride())


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as bytes, so that NaN equals itself."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def poisoned_elements(output: torch.Tensor, poison: int) -> torch.Tensor:
    """Which elements hold the byte that their memory was filled with, in the order of a contiguous copy."""
    return (bytes_of(output).view(-1, output.element_size()) == poison).all(dim=1)


@dataclass(frozen=True)
class GuardZones:
    """The bytes before and after a tensor; they can be looked at for as long as anything holds its `memory`."""

    bytes: tuple[torch.Tensor, torch.Tensor]
    poison: int
    memory: StorageWeakRef

    @property
    def held(self) -> bool:
        """Whether the tensor, or a view of it, still lives. Of a tensor without zones its own bytes keep it."""
        return not self.memory.expired()  # type: ignore[no-untyped-call,unused-ignore]

    def intact(self) -> bool:
        """Whether nothing wrote beside the tensor."""
        return all(bool((zone == self.poison).all()) for zone in self.bytes)


class Guarded:
    """A tensor between two zones of known bytes, so that a write beside it shows.

    `poison` fills tensor and zones: unwritten memory then reads as NaN (or a large number), never as a result.
    With `zone_bytes` 0 there are no zones: the emulated GPU knows where a tensor ends.
    """

    def __init__(
        self,
        shape: Sequence[int],
        stride: Sequence[int],
        dtype: torch.dtype,
        device: str,
        *,
        poison: int = NAN_POISON,
        misaligned_bytes: int = 0,
        zone_bytes: int = GUARD_BYTES,
    ) -> None:
        item_bytes = dtype.itemsize
        self.begin = zone_bytes + misaligned_bytes // item_bytes * item_bytes
        self.end = self.begin + span_of(shape, stride) * item_bytes
        total = -(-(self.end + zone_bytes) // 256) * 256 if zone_bytes else self.end
        self.raw = torch.full((total,), poison, dtype=torch.uint8, device=device)
        inner = _as_own_storage(self.raw[self.begin : self.end]) if zone_bytes else None
        self._memory, self._first = (inner, 0) if inner is not None else (self.raw.untyped_storage(), self.begin)
        self.zones = GuardZones((self.raw[: self.begin], self.raw[self.end :]), poison, StorageWeakRef(self._memory))  # type: ignore[no-untyped-call,unused-ignore]
        self.tensor = self.alias(shape, stride, dtype)

    def alias(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor over the guarded bytes with a version counter of its own: writing to it bumps no other's."""
        tensor = torch.empty(0, dtype=dtype, device=self.raw.device)
        keep: Any = torch.autograd._unsafe_preserve_version_counter  # type: ignore[attr-defined,unused-ignore]
        with keep(tensor):  # 0, as that of what torch.empty gives
            return tensor.set_(self._memory, self._first // dtype.itemsize, tuple(shape), tuple(stride))

    @classmethod
    def holding(
        cls,
        layout: TensorLayout,
        source: torch.Tensor | None,
        device: str,
        *,
        zone_bytes: int = GUARD_BYTES,
        poison: int = NAN_POISON,
    ) -> Guarded:
        """The described tensor with bytes that were read before; None for those of an empty one."""
        guarded = cls(
            layout.shape,
            layout.stride,
            dtype_of(layout),
            device,
            poison=poison,
            misaligned_bytes=layout.misaligned_bytes,
            zone_bytes=zone_bytes,
        )
        guarded.fill(source)
        return guarded

    def fill(self, source: torch.Tensor | None) -> None:
        """Overwrite the tensor's bytes with others of the same layout, unseen by its version counter."""
        if source is not None:
            self.alias((source.numel(),), (1,), torch.uint8).copy_(source)

    def overlaps(self, other: torch.Tensor) -> bool:
        """Whether an element of another tensor lies on a byte of this one."""
        base, first = self.raw.data_ptr(), other.data_ptr()
        end = first + span_of(other.shape, other.stride()) * other.element_size()
        return max(base + self.begin, first) < min(base + self.end, end)


def _as_own_storage(part: torch.Tensor) -> torch.UntypedStorage:
    """A storage that begins and ends with the part, as an allocation of torch does: offsets would tell of the zones."""
    capsule = torch.utils.dlpack.to_dlpack(part)  # type: ignore[attr-defined,unused-ignore]
    owned: torch.Tensor = torch.utils.dlpack.from_dlpack(capsule)
    return owned.untyped_storage()


def bytes_of_values(values: Sequence[Any]) -> int:
    """Bytes of the elements of tensors, each once (a broadcast dimension is stored once)."""
    found = [value for value in values if isinstance(value, torch.Tensor)]
    return sum(min(v.numel(), span_of(v.shape, v.stride())) * v.element_size() for v in found)


def summarize(values: Sequence[Any]) -> str:
    """Inputs in a line: `bfloat16[64, 128], float32[128] strided (2,), 3, "none"`."""
    return ", ".join(_summarize(value) for value in gathered(values))


def _summarize(value: Any) -> str:
    if isinstance(value, (list, tuple)) and not is_option(value):
        return f"[{', '.join(map(_summarize, value))}]"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return text if value.is_contiguous() else f"{text} strided {tuple(value.stride())}"

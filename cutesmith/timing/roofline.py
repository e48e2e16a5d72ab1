"""The least time that some work takes on a measured device: its bytes, or its operations. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ROOFS = {"bytes": "copy bandwidth", "flops": "a large matrix product's rate"}
"""What a floor's kind is a share of."""

Rates = Mapping[str, float | None]
"""Operations a second that this device multiplies a dtype with, None where that could not be measured."""


@dataclass(frozen=True)
class Work:
    """Bytes that cross device memory once, and tensor-core operations by dtype ("bfloat16"); empty where none."""

    bytes: int
    flops: dict[str, int] = field(default_factory=dict)

    @property
    def total_flops(self) -> int:
        """Operations of all dtypes."""
        return sum(self.flops.values())


@dataclass(frozen=True)
class Floor:
    """The least time (microseconds) for some work, what sets it ("bytes" or "flops"), and the rate (FLOP/s) or None."""

    us: float
    kind: str
    flops_per_second: float | None


def floor_of(work: Work, copy_bytes_per_second: float, rates: Rates) -> Floor:
    """The later of two: the bytes at the copy's bandwidth, the operations at the measured rates of their dtypes."""
    bytes_us = 1e6 * work.bytes / copy_bytes_per_second
    seconds = 0.0
    for dtype, flops in work.flops.items():
        rate = rates.get(dtype)
        if not rate:  # a share of unknown speed: no statement about the whole
            return Floor(bytes_us, "bytes", None)
        seconds += flops / rate
    if not seconds:
        return Floor(bytes_us, "bytes", None)
    kind = "flops" if 1e6 * seconds > bytes_us else "bytes"
    return Floor(max(bytes_us, 1e6 * seconds), kind, work.total_flops / seconds)

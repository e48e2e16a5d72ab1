"""The least time that some work takes on a device: its bytes, or its operations. Imports no torch.

The device is measured; where that cannot be, `known_rates` says how fast some GPUs copy and multiply. What was measured
here goes before what a data sheet promises; a data sheet's numbers are never reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cutesmith.devices import parse_arch, sm_of_name

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


@dataclass(frozen=True, kw_only=True)
class KnownRates:
    """Of one product: bytes a second of a large copy, operations a second of a large matrix product by dtype.

    `source` says where these numbers are from, as the end of a sentence. `peak_flops_per_second` are the dense
    tensor-core peaks of the data sheet, which no kernel exceeds.
    """

    product: str
    sm: int
    bytes_per_second: float
    flops_per_second: Mapping[str, float] = field(default_factory=dict)
    peak_flops_per_second: Mapping[str, float] = field(default_factory=dict)
    source: str

    def of(self, device_name: str) -> bool:
        """Whether a GPU of that name is this product, and not a board of it with a slower memory."""
        return self.product in device_name and not any(board in device_name.upper() for board in _OTHER_BOARDS)


_OTHER_BOARDS = ("PCIE", "NVL")


def _halves(rate: float) -> dict[str, float]:
    return {"bfloat16": rate, "float16": rate}


def _eighths(rate: float) -> dict[str, float]:
    return {"float8_e4m3fn": rate, "float8_e5m2": rate}


H200 = KnownRates(
    product="H200",
    sm=90,
    bytes_per_second=4.26e12,  # evals/results/h200/tasks, the largest of 19 copies; the smallest 4.21e12
    flops_per_second=_halves(714e12),  # references/patterns-gemm.md: cuBLAS 702 to 714 at 4096 cubed, cold L2
    peak_flops_per_second={
        **_halves(989.4e12),
        **_eighths(1978.9e12),
        "int8": 1978.9e12,
        "float32": 494.7e12,
        "float64": 67e12,
    },
    source="measured on an H200",
)
H100 = KnownRates(
    product="H100",
    sm=90,
    bytes_per_second=2.98e12,  # evals/results/h100/table/compiled: 31 copies of 268 MB to 2.4 GB, 2.87e12 to 3.01e12
    flops_per_second=_halves(796e12),  # evals/results/h100/table/all_products: cuBLAS at 8192 cubed
    peak_flops_per_second=H200.peak_flops_per_second,
    source="measured on an H100",
)
_A100_PEAKS = {**_halves(312e12), "int8": 624e12, "float32": 156e12, "float64": 19.5e12}
A100 = KnownRates(
    product="A100",
    sm=80,
    bytes_per_second=2.039e12,
    flops_per_second=_A100_PEAKS,
    peak_flops_per_second=_A100_PEAKS,
    source="of the data sheet of an A100 SXM4 80 GB, which no kernel reaches",
)
_B200_PEAKS = {**_halves(2250e12), **_eighths(4500e12), "float32": 1100e12}
B200 = KnownRates(
    product="B200",
    sm=100,
    bytes_per_second=8e12,
    flops_per_second=_B200_PEAKS,
    peak_flops_per_second=_B200_PEAKS,
    source="of the data sheet of a B200 at 1000 W, which no kernel reaches",
)
RATES = (H200, H100, A100, B200)
"""Data sheets state twice these peaks, for 2:4 sparse operands; float32 is multiplied as TF32 there."""


def known_rates(arch: str, device_name: str = "") -> KnownRates | None:
    """The rates of the GPU of that name, or without one of the usual product of an architecture; None if not known.

    A GPU of another name than the table's has other memory: nothing is said of it. Raises UsageError for an unknown
    architecture.
    """
    if device_name:
        sm = sm_of_name(device_name)
        return next((rates for rates in RATES if sm and rates.sm == sm.number and rates.of(device_name)), None)
    return next((rates for rates in RATES if rates.sm == parse_arch(arch).sm.number), None)

"""The table of SM versions and their limits, what fits on one, and the GPU of this machine.

Numbers are those of the CUDA C++ Programming Guide ("Technical Specifications per Compute Capability") and of the
occupancy rules that NVIDIA publishes in `cuda_occupancy.h`. Sizes are bytes, registers are 32 bits wide.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cutesmith.errors import UnavailableError, UsageError

WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK_DIM = (1024, 1024, 64)
MAX_GRID_DIM = (2**31 - 1, 65535, 65535)
MAX_REGISTERS_PER_THREAD = 255
RESERVED_SMEM_PER_BLOCK = 1024  # the system's own share of every block, sm_80 and later
SMEM_ALLOCATION_UNIT = 128
REGISTER_ALLOCATION_UNIT = 256  # registers a warp
SUB_PARTITIONS = 4
DEFAULT_ARCHS = ("sm_80", "sm_90a", "sm_100a")
DEFAULT_ARCH = "sm_90a"


@dataclass(frozen=True, kw_only=True)
class SmVersion:
    """Limits of one SM version (compute capability): bytes, 32-bit registers, threads, blocks of a cluster.

    `multiprocessors` and `l2_bytes` are those of the usual product and only stand in where no GPU can be asked.
    """

    number: int  # 90 for compute capability 9.0
    family: str
    products: tuple[str, ...]
    tensor_cores: tuple[str, ...]
    smem_per_sm: int
    smem_per_block: int  # opt-in
    threads_per_sm: int
    blocks_per_sm: int
    multiprocessors: int
    l2_bytes: int
    registers_per_sm: int = 65536
    max_cluster: int = 1  # portable
    max_cluster_nonportable: int = 1
    tma: bool = False
    features: str = ""  # "a" where arch-specific instructions exist (sm_90a), "af" where family-specific ones do too

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability as (major, minor)."""
        return divmod(self.number, 10)

    @property
    def default_arch(self) -> str:
        """The architecture to compile for: arch-specific where that exists (`sm_90a`), else plain (`sm_80`)."""
        return f"sm_{self.number}{'a' if self.features else ''}"

    @property
    def warps_per_sm(self) -> int:
        """Resident warps of one multiprocessor."""
        return self.threads_per_sm // WARP_SIZE


_KB = 1024
_MMA = "mma.sync"

_A100 = SmVersion(
    number=80,
    family="Ampere",
    products=("A100", "A800", "A30"),
    tensor_cores=(_MMA,),
    smem_per_sm=164 * _KB,
    smem_per_block=163 * _KB,
    threads_per_sm=2048,
    blocks_per_sm=32,
    multiprocessors=108,
    l2_bytes=40 << 20,
)
_RTX_3090 = SmVersion(
    number=86,
    family="Ampere",
    products=("RTX 3090", "RTX 3080", "RTX 3070", "RTX 3060", "RTX A6000", "RTX A5000", "A40", "A16", "A10"),
    tensor_cores=(_MMA,),
    smem_per_sm=100 * _KB,
    smem_per_block=99 * _KB,
    threads_per_sm=1536,
    blocks_per_sm=16,
    multiprocessors=84,
    l2_bytes=6 << 20,
)
_RTX_4090 = replace(
    _RTX_3090,
    number=89,
    family="Ada",
    products=("RTX 4090", "RTX 4080", "RTX 4070", "RTX 4060", "RTX 6000 Ada", "L40S", "L40", "L4"),
    tensor_cores=(_MMA, "mma.sync (fp8)"),
    blocks_per_sm=24,
    multiprocessors=128,
    l2_bytes=72 << 20,
)
_H100 = replace(
    _A100,
    number=90,
    family="Hopper",
    products=("H100", "H200", "H800", "H20", "GH200"),
    tensor_cores=(_MMA, "wgmma"),
    smem_per_sm=228 * _KB,
    smem_per_block=227 * _KB,
    multiprocessors=132,
    l2_bytes=50 << 20,
    max_cluster=8,
    max_cluster_nonportable=16,
    tma=True,
    features="a",
)
_B200 = replace(
    _H100,
    number=100,
    family="Blackwell",
    products=("B200", "B100", "GB200"),
    tensor_cores=(_MMA, "tcgen05.mma"),
    multiprocessors=148,
    l2_bytes=126 << 20,
    features="af",
)
_B300 = replace(_B200, number=103, family="Blackwell Ultra", products=("B300", "GB300"))
_THOR = replace(
    _B200,
    number=110,
    family="Blackwell (Jetson Thor)",
    products=("Thor",),
    threads_per_sm=1536,
    blocks_per_sm=24,
    multiprocessors=20,
    l2_bytes=32 << 20,
)
_RTX_5090 = replace(
    _RTX_4090,
    number=120,
    family="Blackwell (GeForce, RTX PRO)",
    products=("RTX 5090", "RTX 5080", "RTX 5070", "RTX 5060", "RTX PRO 6000 Blackwell"),
    tensor_cores=(_MMA, "mma.sync (fp8, fp6, fp4 block-scaled)"),
    multiprocessors=170,
    l2_bytes=96 << 20,
    max_cluster=8,
    max_cluster_nonportable=8,
    tma=True,
    features="af",
)
_SPARK = replace(
    _RTX_5090, number=121, family="Blackwell (DGX Spark)", products=("GB10",), multiprocessors=48, l2_bytes=24 << 20
)

SM_VERSIONS: dict[int, SmVersion] = {
    sm.number: sm for sm in (_A100, _RTX_3090, _RTX_4090, _H100, _B200, _B300, _THOR, _RTX_5090, _SPARK)
}
"""SM120 is not SM100: a GeForce Blackwell has 99 KB of shared memory a block, no tcgen05 and no tensor memory."""


@dataclass(frozen=True)
class Arch:
    """A compile target: an SM version and its suffix ("", "a" arch-specific, "f" family-specific)."""

    sm: SmVersion
    suffix: str

    def __str__(self) -> str:
        return f"sm_{self.sm.number}{self.suffix}"

    def runs_on(self, sm: SmVersion) -> bool:
        """Whether a cubin of this target loads on a GPU of `sm`.

        Plain cubins run on the same major version with the same or a higher minor one, "f" cubins likewise within
        their family, "a" cubins on exactly their SM.
        """
        if self.suffix == "a":
            return sm.number == self.sm.number
        same_major = sm.capability[0] == self.sm.capability[0]
        return same_major and sm.capability[1] >= self.sm.capability[1]


@functools.cache
def parse_arch(text: str) -> Arch:
    """The compile target that `text` names: "sm_90a", "sm90a", "90a", "sm_100f", "9.0".

    Raises UsageError for an SM version that is not in the table, or for a suffix that it does not have.
    """
    match = re.fullmatch(r"(?:sm_?)?(\d+)(?:\.(\d))?([af]?)", text.strip().lower())
    number = int(match.group(1) + (match.group(2) or "")) if match else 0
    if match is None or number not in SM_VERSIONS:
        known = ", ".join(sm.default_arch for sm in SM_VERSIONS.values())
        raise UsageError(f"{text!r} is not an architecture that cutesmith knows", hint=f"Use one of: {known}")
    sm, suffix = SM_VERSIONS[number], match.group(3)
    if suffix and suffix not in sm.features:
        raise UsageError(f"sm_{number} has no variant {suffix!r}", hint=f"Use {sm.default_arch}")
    return Arch(sm, suffix)


def sm_of_name(name: str) -> SmVersion | None:
    """The SM version of a GPU by its product name ("NVIDIA H200", "NVIDIA GeForce RTX 5090"); None when unknown."""
    wanted = f" {name.lower().replace('-', ' ')} "
    names = [(product, sm) for sm in SM_VERSIONS.values() for product in sm.products]
    for product, sm in sorted(names, key=lambda item: -len(item[0])):
        if f" {product.lower()} " in wanted:
            return sm
    return None


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel one multiprocessor holds, the percentage of its warps, and what limits it."""

    blocks: int
    percent: float
    limit: str  # of "threads", "registers", "shared memory", "blocks" those that allow as few; when 0 blocks fit, one


def registers_per_block(registers: int, threads: int) -> int:
    """Registers that one block reserves: a warp's share rounded up to 256, warps spread over four sub-partitions."""
    return _registers_per_warp(registers) * _round_up(-(-threads // WARP_SIZE), SUB_PARTITIONS)


def occupancy(sm: SmVersion, *, threads: int, registers: int, smem: int) -> Occupancy:
    """Resident blocks on one multiprocessor, by the rules of `cuda_occupancy.h`.

    `threads` a block, `registers` a thread, `smem` bytes a block (static and dynamic, without the reserved 1 KB).
    """
    warps = max(1, -(-threads // WARP_SIZE))
    bounds = {
        "threads": sm.threads_per_sm // (warps * WARP_SIZE),
        "registers": _blocks_by_registers(sm, registers, threads),
        "shared memory": sm.smem_per_sm // _round_up(smem + RESERVED_SMEM_PER_BLOCK, SMEM_ALLOCATION_UNIT),
        "blocks": sm.blocks_per_sm,
    }
    if threads > MAX_THREADS_PER_BLOCK:
        bounds["threads"] = 0
    if smem > sm.smem_per_block:
        bounds["shared memory"] = 0
    blocks = min(bounds.values())
    limits = [name for name, bound in bounds.items() if bound == blocks]
    limit = " and ".join(limits) if blocks else f"{limits[0]}: does not fit"
    return Occupancy(blocks, round(100 * blocks * warps / sm.warps_per_sm, 1), limit)


def _blocks_by_registers(sm: SmVersion, registers: int, threads: int) -> int:
    if registers_per_block(registers, threads) > sm.registers_per_sm or registers > MAX_REGISTERS_PER_THREAD:
        return 0
    warps_per_partition = sm.registers_per_sm // SUB_PARTITIONS // max(1, _registers_per_warp(registers))
    return SUB_PARTITIONS * warps_per_partition // max(1, -(-threads // WARP_SIZE))


def _registers_per_warp(registers: int) -> int:
    return _round_up(max(1, registers) * WARP_SIZE, REGISTER_ALLOCATION_UNIT)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True)
class Device:
    """One GPU of this machine, as the driver names it."""

    index: int
    name: str
    capability: tuple[int, int]
    driver: str
    memory_bytes: int = 0
    uuid: str = ""  # "GPU-…"

    @property
    def sm(self) -> SmVersion | None:
        """Its row of the table, None for an SM that the table does not hold."""
        return SM_VERSIONS.get(10 * self.capability[0] + self.capability[1])

    def fitting_arch(self, wanted: str | None = None) -> str:
        """The architecture to compile for here: `wanted`, else the device's own.

        Raises UsageError for an unknown one, UnavailableError for one that does not run here; of a device whose SM is
        unknown nothing is said.
        """
        if self.sm is None:
            return wanted or f"sm_{10 * self.capability[0] + self.capability[1]}"
        if wanted and not parse_arch(wanted).runs_on(self.sm):
            raise UnavailableError(f"{wanted} does not run on this machine's {self.name}")
        return wanted or self.sm.default_arch


def current_device() -> Device | None:
    """The first GPU that a program started now would use; None without a GPU or a driver, or where none is visible.

    CUDA_VISIBLE_DEVICES is read as CUDA does. Its indices count as `nvidia-smi` lists them: on a machine with GPUs of
    several kinds set CUDA_DEVICE_ORDER=PCI_BUS_ID, so that CUDA counts in the same order.
    """
    return next(iter(visible_devices(list_devices(), os.environ.get("CUDA_VISIBLE_DEVICES"))), None)


def visible_devices(devices: Sequence[Device], visible: str | None) -> list[Device]:
    """Those of the devices that `visible`, a value of CUDA_VISIBLE_DEVICES, leaves, in its order; None leaves all.

    A name is an index or the beginning of one device's UUID; the first that names none ends the list (CUDA C++
    Programming Guide, "CUDA Environment Variables"), as does one that was there before. A part of a GPU by the UUID of
    its own ("MIG-…"), which tells nothing of the GPU, is taken as a part of the first.
    """
    if visible is None:
        return list(devices)
    chosen: list[Device] = []
    for name in (name.strip() for name in visible.split(",")):
        device = _named_device(devices, name)
        if device is None or device in chosen:
            break
        chosen.append(device)
    return chosen


def _named_device(devices: Sequence[Device], name: str) -> Device | None:
    if name.isdecimal():
        return next((device for device in devices if device.index == int(name)), None)
    whole = name.removeprefix("MIG-").partition("/")[0]  # drivers before 470 named parts MIG-GPU-…/1/0
    if name.startswith("MIG-") and not whole.startswith("GPU-"):
        return next(iter(devices), None)
    found = [device for device in devices if whole.startswith("GPU-") and device.uuid.startswith(whole)]
    return found[0] if len(found) == 1 else None


def list_devices() -> list[Device]:
    """Every GPU that `nvidia-smi` lists; empty without one. Asks no CUDA library, so no context is created."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = "--query-gpu=index,name,compute_cap,driver_version,memory.total,uuid"
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [device for line in done.stdout.splitlines() if (device := _device_of_line(line)) is not None]


def _device_of_line(line: str) -> Device | None:
    fields = [field.strip() for field in line.split(",")]
    match = re.fullmatch(r"(\d+)\.(\d+)", fields[2]) if len(fields) >= 5 else None
    if match is None:
        return None
    memory = int(fields[4]) << 20 if fields[4].isdigit() else 0
    return Device(
        int(fields[0]), fields[1], (int(match.group(1)), int(match.group(2))), fields[3], memory, *fields[5:6]
    )

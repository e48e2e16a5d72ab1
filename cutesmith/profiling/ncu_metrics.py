"""What ncu measured of one launch, under names of our own: which sections are collected, which metric is which field.

Metrics are those of the "Kernel Profiling Guide" (docs.nvidia.com/nsight-compute/ProfilingGuide, Metrics Reference) as
the sections of Nsight Compute collect them. Names differ between architectures: each field lists its names, the first
that is there counts. Sections rather than metrics are asked for: ncu refuses a whole run for a name that a chip lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutesmith.profiling.ncu_reader import RawLaunch, Triple

SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "ComputeWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
)
_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
_GLOBAL = "mem_global_op_"
_SHARED = "pipe_lsu_mem_shared_op_"
_STALL, _STALL_END = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
_SELECTED = "selected"  # the state of a warp that issues: part of the whole, no stall
_LIMIT = "launch__occupancy_limit_"
MOST_STALLS = 5
SECTOR_BYTES = 32

NAMES: dict[str, tuple[str, ...]] = {
    "seconds": ("gpu__time_duration.sum", "gpu__time_duration.avg"),
    "dram_bytes_per_second": ("dram__bytes.sum.per_second",),
    "dram_percent": (f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}"),
    "memory_percent": (f"gpu__compute_memory_throughput.{_ELAPSED}",),
    "l2_percent": (f"lts__throughput.{_ELAPSED}",),
    "l2_hit_percent": ("lts__t_sector_hit_rate.pct",),
    "l1_percent": ("l1tex__throughput.avg.pct_of_peak_sustained_active", f"l1tex__throughput.{_ELAPSED}"),
    "l1_hit_percent": ("l1tex__t_sector_hit_rate.pct",),
    "sm_percent": (f"sm__throughput.{_ELAPSED}",),
    "issue_per_cycle": ("smsp__issue_active.avg.per_cycle_active",),
    "occupancy_percent": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "theoretical_occupancy_percent": ("sm__maximum_warps_per_active_cycle_pct",),
    "registers": ("launch__registers_per_thread",),
    "static_smem_bytes": ("launch__shared_mem_per_block_static",),
    "dynamic_smem_bytes": ("launch__shared_mem_per_block_dynamic",),
    "waves": ("launch__waves_per_multiprocessor",),
    "multiprocessors": ("launch__sm_count", "device__attribute_multiprocessor_count"),
    "cluster_size": ("launch__cluster_size",),
    "load_bytes_per_sector": (f"smsp__sass_average_data_bytes_per_sector_{_GLOBAL}ld.ratio",),
    "store_bytes_per_sector": (f"smsp__sass_average_data_bytes_per_sector_{_GLOBAL}st.ratio",),
    "shared_load_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
    "shared_store_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),
    "shared_load_conflicts": (f"l1tex__data_bank_conflicts_{_SHARED}ld.sum",),
    "shared_store_conflicts": (f"l1tex__data_bank_conflicts_{_SHARED}st.sum",),
    "local_load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",),
    "local_store_sectors": ("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",),
    "spill_requests": ("derived__local_spilling_requests", "sass__inst_executed_register_spilling"),
}
TENSOR_PIPES = (  # sm_100 has two, of which the busier counts
    f"sm__pipe_tensor_cycles_active.{_ELAPSED}",
    f"sm__pipe_tensor_cycles_active_v2.{_ELAPSED}",
    f"sm__pipe_tc_cycles_active.{_ELAPSED}",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
)
_WHOLE = ("registers", "static_smem_bytes", "dynamic_smem_bytes", "multiprocessors", "cluster_size")


@dataclass(frozen=True, kw_only=True)
class ProfiledKernel:
    """One launch as ncu measured it: µs, bytes, percent of the hardware's peak; None where ncu gave no number.

    `stalls`: the reasons for which warps waited longest, as a share of all warp cycles. `bytes_per_sector`: how many of
    the 32 bytes of each sector were asked for. `occupancy_limits`: blocks an SM that each resource allows.
    """

    name: str
    grid: Triple
    block: Triple
    duration_us: float | None = None
    dram_bytes: float | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    dram_percent: float | None = None
    memory_percent: float | None = None
    l2_percent: float | None = None
    l2_hit_percent: float | None = None
    l1_percent: float | None = None
    l1_hit_percent: float | None = None
    sm_percent: float | None = None
    tensor_percent: float | None = None
    issue_percent: float | None = None
    occupancy_percent: float | None = None
    theoretical_occupancy_percent: float | None = None
    occupancy_limits: dict[str, int] = field(default_factory=dict)
    occupancy_limiter: str = ""
    registers: int | None = None
    static_smem_bytes: int | None = None
    dynamic_smem_bytes: int | None = None
    waves: float | None = None
    multiprocessors: int | None = None
    cluster_size: int | None = None
    load_sectors_per_request: float | None = None
    store_sectors_per_request: float | None = None
    load_bytes_per_sector: float | None = None
    store_bytes_per_sector: float | None = None
    shared_load_wavefronts: float | None = None
    shared_store_wavefronts: float | None = None
    shared_load_conflicts: float | None = None
    shared_store_conflicts: float | None = None
    local_load_sectors: float | None = None
    local_store_sectors: float | None = None
    spill_requests: float | None = None
    stalls: dict[str, float] = field(default_factory=dict)


def profiled_kernel(launch: RawLaunch) -> ProfiledKernel:
    """The fields of one launch; those whose metrics are missing stay None."""
    metrics = launch.metrics
    found: dict[str, Any] = {name: _first(metrics, names) for name, names in NAMES.items()}
    seconds, rate = found.pop("seconds"), found.pop("dram_bytes_per_second")
    issued = found.pop("issue_per_cycle")
    read, written = (_dram_moved(metrics, way) for way in ("read", "write"))
    limits = {
        name.removeprefix(_LIMIT).replace("_", " "): int(value)
        for name, value in metrics.items()
        if name.startswith(_LIMIT)
    }
    found |= {name: None if found[name] is None else int(found[name]) for name in _WHOLE}
    dram_bytes = None if seconds is None or rate is None else rate * seconds
    if read is not None and written is not None:
        dram_bytes = read + written
    least = min(limits.values(), default=0)
    return ProfiledKernel(
        name=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        duration_us=None if seconds is None else 1e6 * seconds,
        dram_bytes=dram_bytes,
        dram_read_bytes=read,
        dram_write_bytes=written,
        tensor_percent=max((metrics[name] for name in TENSOR_PIPES if name in metrics), default=None),
        issue_percent=None if issued is None else 100 * issued,
        occupancy_limits=limits,
        # Such as "registers" or "registers and shared mem": what allows the fewest blocks an SM.
        occupancy_limiter=" and ".join(sorted(name for name, blocks in limits.items() if blocks == least)),
        load_sectors_per_request=_sectors_per_request(metrics, "ld"),
        store_sectors_per_request=_sectors_per_request(metrics, "st"),
        stalls=_stalls(metrics),
        **found,
    )


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((metrics[name] for name in names if name in metrics), None)


def _dram_moved(metrics: Mapping[str, float], way: str) -> float | None:
    """Bytes read or written, from whichever of the table's columns is there."""
    moved = _first(metrics, (f"dram__bytes_{way}.sum", f"dram__bytes_op_{way}.sum"))
    sectors = _first(metrics, (f"dram__sectors_{way}.sum", f"dram__sectors_op_{way}.sum"))
    return SECTOR_BYTES * sectors if moved is None and sectors is not None else moved


def _sectors_per_request(metrics: Mapping[str, float], way: str) -> float | None:
    """Sectors of an average request; sm_100 has the two sums only."""
    ratio = metrics.get(f"l1tex__average_t_sectors_per_request_pipe_lsu_{_GLOBAL}{way}.ratio")
    if ratio is not None:
        return ratio or None
    sectors = metrics.get(f"l1tex__t_sectors_pipe_lsu_{_GLOBAL}{way}.sum")
    requests = metrics.get(f"l1tex__t_requests_pipe_lsu_{_GLOBAL}{way}.sum")
    return sectors / requests if sectors is not None and requests else None


def _stalls(metrics: Mapping[str, float]) -> dict[str, float]:
    """The longest waits as shares of all warp cycles, the longest first."""
    states = {
        name[len(_STALL) : -len(_STALL_END)]: value
        for name, value in metrics.items()
        if name.startswith(_STALL) and name.endswith(_STALL_END)
    }
    whole = sum(states.values())
    waits = sorted(((value, name) for name, value in states.items() if name != _SELECTED and value > 0), reverse=True)
    return {name: round(value / whole, 4) for value, name in waits[:MOST_STALLS]}

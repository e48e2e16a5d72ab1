"""What a profile asks for: what bounds the kernel, then remarks by how much of its time is at stake.

Each remark names the metric that says so and the section of the references that says what to do. `advise` weighs what
ncu measured, `static_advice` repeats the emulated GPU's own remarks. 80 % of a peak counts
as busy and 60 % as idle, as in ncu's own rules of the section SpeedOfLight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

from cutesmith.profiling.ncu_metrics import SECTOR_BYTES, ProfiledKernel
from cutesmith.verdicts import EmulatedAdvice, EmulateVerdict

BUSY, IDLE = 80.0, 60.0
_UNCOALESCED = 0.75  # of a sector's bytes asked for
_VECTOR_SECTORS = 16  # of a request by 32 lanes of 16 bytes: a coalesced one has no more
_CONFLICTS = 0.1  # of the wavefronts, as in ncu's rule SharedMemoryConflicts
_TRAFFIC = 1.25  # times the bytes of inputs and outputs
_TAIL = 0.15  # of the waves' time in which blocks are missing
_TENSOR = 1.0, 50.0  # percent: between them tensor cores are used and mostly idle
_LOW_OCCUPANCY, _UNEVEN = 50.0, 0.75
_NEGLIGIBLE = 0.02

STALLS = "profiling.md#ncu-what-do-the-stall-reasons-mean"
COALESCING = "patterns-memory.md#how-wide-is-my-access-assumed_align-divisibility-coalescing"
BANKS = "patterns-memory.md#bank-conflicts"
LOADS_EARLY = "optimizations.md#all-loads-early-instruction-level-parallelism"
OCCUPANCY = "design-tiling.md#occupancy-how-much-is-enough"
STAGES = "design-tiling.md#how-many-stages-bytes-in-flight"
REGISTERS = "optimizations.md#registers-min_blocks_per_mp-maxrregcount-launch-bounds"
WAVES = "design-tiling.md#wave-quantisation"
VISITS = "optimizations.md#fewer-visits-to-memory"
STACK = "profiling.md#what-does-compile_kernelpy-tell"
FLOORS = "profiling.md#which-floor-applies"
LARGE_GEMM = "patterns-gemm.md#what-limits-a-large-gemm"
ARITHMETIC = "optimizations.md#packed-bf16-and-fp32-arithmetic"
VECTORS = "optimizations.md#16-byte-vector-loads"
ATOMICS = "patterns-memory.md#atomics"
SHUFFLES = "patterns-reduction.md#cutearchwarp_reduction-and-the-butterfly"
EXP2 = "optimizations.md#exp2-with-log2e-folded-in"
PROFILE = "profiling.md#emulate_kernelpy---profile"
PROMOTION = "anti-patterns.md#fp16-promotion-by-a-python-number"

WAITS: dict[str, tuple[str, str]] = {
    "long_scoreboard": (
        "global or local memory",
        "more bytes in flight: all loads before the first use, more warps, cp.async or TMA stages",
    ),
    "short_scoreboard": ("shared memory or special functions", "fewer bank conflicts and shuffles, exp2"),
    "barrier": ("other warps at a barrier", "fewer barriers, evenly loaded warps, roles"),
    "lg_throttle": ("the queue of global accesses", "fewer and wider accesses"),
    "mio_throttle": ("the queue of shared-memory, shuffle and special instructions", "wider shared accesses, ldmatrix"),
    "math_pipe_throttle": ("a busy arithmetic pipe", "fewer of that instruction, or another pipe for some of them"),
    "wait": ("a fixed latency of arithmetic", "more independent work a thread"),
    "membar": ("a fence", "weaker or fewer fences"),
    "gmma": ("wgmma", "a product more in flight: wait_group(1), more math warpgroups"),
    "drain": ("its stores at the end of the kernel", "wider, coalesced stores; more work a block"),
    "no_instruction": ("instruction fetch", "less unrolling"),
    "imc_miss": ("a constant", "fewer kernel parameters read late"),
    "sleeping": ("nanosleep", "waits at an mbarrier: find whose arrival is late"),
    "branch_resolving": ("a jump", "waits at an mbarrier are such loops: find whose arrival is late"),
}

REFERENCES = {
    "uncoalesced": COALESCING,
    "narrow": VECTORS,
    "contention": ATOMICS,
    "bank conflict": BANKS,
    "local memory": REGISTERS,
    "idle lanes": PROFILE,
    "shuffle": SHUFFLES,
    "special function": EXP2,
    "conversion": ARITHMETIC,
    "fp64": PROMOTION,
}
"""Where to read on, by the kind of remark of the emulator's `profiling.advice`."""


@dataclass(frozen=True)
class ProfileAdvice:
    """A remark: what is wrong and what to do, the metric that says so, and a section of `references/`.

    `weight` estimates the share of the time at stake; remarks are ranked by it. `kernel`: which launch, or which line.
    """

    kind: str
    message: str
    metric: str
    reference: str
    value: float | None = None
    weight: float = 0.0
    kernel: str = ""


def advise(kernel: ProfiledKernel, *, tensor_bytes: float | None = None) -> tuple[ProfileAdvice, ...]:
    """What bounds the kernel, then what to change, the largest stake first.

    `tensor_bytes`: inputs and outputs, where this launch is the only one that reads and writes them.
    """
    found = [
        *_uncoalesced(kernel),
        *_bank_conflicts(kernel),
        *_local_memory(kernel),
        *_extra_traffic(kernel, tensor_bytes),
        *_waves(kernel),
        *_tensor_pipe(kernel),
        *_waiting(kernel),
        *_uneven(kernel),
    ]
    worth = [remark for remark in found if remark.weight >= _NEGLIGIBLE]
    return (*_bound(kernel), *sorted(worth, key=lambda remark: -remark.weight))


def busiest(kernel: ProfiledKernel) -> tuple[str, float]:
    """The unit that is nearest to its peak, and its percentage; ("", 0) where ncu gave none."""
    units = {
        "the tensor pipe": kernel.tensor_percent,
        "DRAM": kernel.dram_percent,
        "L2": kernel.l2_percent,
        "L1 and shared memory": kernel.l1_percent,
        "the multiprocessors": kernel.sm_percent,
    }
    known = {name: percent for name, percent in units.items() if percent is not None}
    return max(known.items(), key=lambda item: item[1], default=("", 0.0))


# Of each unit: the metric of its load, where to read on, and what to do where it is at its roof.
_UNITS = {
    "the tensor pipe": (
        "sm__pipe_tensor_cycles_active",
        LARGE_GEMM,
        "as a product should be: what is left is fewer bytes and less power",
    ),
    "DRAM": (
        "gpu__dram_throughput",
        FLOORS,
        "near the roof; only fewer bytes make it faster: fuse, narrower types, one visit",
    ),
    "L2": ("lts__throughput", VISITS, "data is read again from L2: keep it in registers or shared memory"),
    "L1 and shared memory": (
        "l1tex__throughput",
        BANKS,
        "fewer and wider accesses, no conflicts, more work in registers",
    ),
    "the multiprocessors": (
        "sm__throughput",
        ARITHMETIC,
        "fewer instructions: packed arithmetic, wider accesses, indices computed once",
    ),
}


def _bound(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    unit, percent = busiest(kernel)
    if not unit:
        return
    metric, reference, remedy = _UNITS[unit]
    if percent >= BUSY:
        text = f"bound by {unit}, busy {percent:.0f} % of the peak: {remedy}"
    elif percent < IDLE:
        text = f"bound by latency: the busiest unit, {unit}, is busy {percent:.0f} % of its peak, so warps wait"
        reference = STALLS
    else:
        text = f"{unit} is busiest with {percent:.0f} % of its peak: neither a roof nor idle"
        reference = FLOORS
    yield ProfileAdvice("bound", text, metric, reference, percent, 1.0)


def _uncoalesced(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    pressure = max(kernel.l1_percent or 0.0, kernel.l2_percent or 0.0, kernel.dram_percent or 0.0) / 100
    cure = "let neighbouring lanes take neighbouring elements"
    for noun, way, used, sectors in (
        ("loads", "ld", kernel.load_bytes_per_sector, kernel.load_sectors_per_request),
        ("stores", "st", kernel.store_bytes_per_sector, kernel.store_sectors_per_request),
    ):
        if used and used < _UNCOALESCED * SECTOR_BYTES:
            each = f", {sectors:.3g} sectors a request" if sectors else ""
            text = f"global {noun} use {used:.3g} of the 32 bytes of each sector{each}: {cure}"
            metric = f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{way}"
            weight = (1 - used / SECTOR_BYTES) * pressure
            yield ProfileAdvice("uncoalesced", text, metric, COALESCING, used, weight)
        elif not used and sectors and sectors > _VECTOR_SECTORS:
            text = f"global {noun} of {sectors:.3g} sectors a request where 16-byte vectors need 16: {cure}"
            metric = f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{way}"
            weight = (1 - _VECTOR_SECTORS / sectors) * pressure
            yield ProfileAdvice("uncoalesced", text, metric, COALESCING, sectors, weight)


def _bank_conflicts(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    for noun, way, conflicts, wavefronts in (
        ("loads", "ld", kernel.shared_load_conflicts, kernel.shared_load_wavefronts),
        ("stores", "st", kernel.shared_store_conflicts, kernel.shared_store_wavefronts),
    ):
        if conflicts and wavefronts and conflicts >= _CONFLICTS * wavefronts:
            share = min(1.0, conflicts / wavefronts)
            text = f"{100 * share:.0f} % of the wavefronts of shared {noun} are bank conflicts: swizzle or pad the rows"
            metric = f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{way}"
            weight = share * (kernel.l1_percent or 0.0) / 100
            yield ProfileAdvice("bank conflict", text, metric, BANKS, conflicts, weight)


def _local_memory(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    sectors = (kernel.local_load_sectors or 0.0) + (kernel.local_store_sectors or 0.0)
    if not sectors:
        return
    cause, cure, where = "registers were spilled", "a smaller tile, fewer live values, no register cap", REGISTERS
    if kernel.spill_requests == 0:
        cause, cure = "an array is indexed by what is only known at run time", "unroll its loop (range_constexpr)"
        where = STACK
    text = f"{SECTOR_BYTES * sectors / 1e3:.4g} kB go through local memory: {cause}; {cure}"
    yield ProfileAdvice("local memory", text, "l1tex__t_sectors_pipe_lsu_mem_local_op_ld + _st", where, sectors, 0.3)


def _extra_traffic(kernel: ProfiledKernel, tensor_bytes: float | None) -> Iterator[ProfileAdvice]:
    """More DRAM bytes than the tensors hold; a small tensor stays in the cache, which only lowers the bytes."""
    if not tensor_bytes or not kernel.dram_bytes or kernel.dram_bytes < _TRAFFIC * tensor_bytes:
        return
    times = kernel.dram_bytes / tensor_bytes
    text = f"DRAM moved {times:.2g} times the bytes of inputs and outputs: something is read or written again"
    text = f"{text}; fuse, keep it in registers, or ask L2 to keep it"
    weight = (1 - 1 / times) * (kernel.dram_percent or 0.0) / 100
    yield ProfileAdvice(
        "extra traffic", text, "dram__bytes_read + dram__bytes_write", VISITS, kernel.dram_bytes, weight
    )


def _waves(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    blocks, sms, waves = prod(kernel.grid), kernel.multiprocessors, kernel.waves
    if sms and blocks < sms:
        text = f"{blocks} blocks for {sms} multiprocessors: smaller tiles, or cut the reduction (split-K)"
        yield ProfileAdvice("small grid", text, "launch__grid_size", WAVES, blocks, 1 - blocks / sms)
    elif waves and waves > 1 and (lost := 1 - waves / ceil(waves)) >= _TAIL:
        text = f"{waves:.3g} waves of blocks: the last leaves {100 * lost:.0f} % of all places empty; another tile size"
        text = f"{text}, or a persistent grid"
        yield ProfileAdvice("tail wave", text, "launch__waves_per_multiprocessor", WAVES, waves, lost)


def _tensor_pipe(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    least, most = _TENSOR
    percent = kernel.tensor_percent or 0.0
    if least < percent < most and (kernel.dram_percent or 0.0) < BUSY:
        text = f"the tensor pipe works {percent:.0f} % of the time: more stages, overlap the epilogue, larger tiles"
        weight = (most - percent) / 100
        yield ProfileAdvice("idle tensor pipe", text, "sm__pipe_tensor_cycles_active", STAGES, percent, weight)


def _waiting(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    """Who waits for what, where schedulers often issue nothing and no unit is at its roof."""
    _, percent = busiest(kernel)
    if percent >= BUSY or kernel.issue_percent is None or kernel.issue_percent >= IDLE:
        return
    idle = 1 - kernel.issue_percent / 100
    by_design = " (roles that wait by design count too)" if (kernel.tensor_percent or 0.0) > _TENSOR[0] else ""
    for reason, share in kernel.stalls.items():
        if reason in WAITS and share >= 0.15:
            subject, cure = WAITS[reason]
            text = f"warps spend {100 * share:.0f} % of their time waiting for {subject}: {cure}{by_design}"
            metric = f"% of all smsp__average_warps_issue_stalled: {reason}"
            reference = LOADS_EARLY if reason == "long_scoreboard" else STALLS
            yield ProfileAdvice("stall", text, metric, reference, 100 * share, share * idle)
    yield from _occupancy(kernel, idle)


def _occupancy(kernel: ProfiledKernel, idle: float) -> Iterator[ProfileAdvice]:
    possible = kernel.theoretical_occupancy_percent
    if possible is None or possible >= _LOW_OCCUPANCY or (kernel.tensor_percent or 0.0) > _TENSOR[0]:
        return
    text = (
        f"at most {possible:.0f} % of an SM's warps fit, limited by {kernel.occupancy_limiter or 'the launch'} "
        f"({kernel.registers} registers a thread): less of it a block, or more bytes in flight by each warp"
    )
    weight = idle * (1 - possible / 100) / 2
    yield ProfileAdvice("occupancy", text, "sm__maximum_warps_per_active_cycle_pct", OCCUPANCY, possible, weight)


def _uneven(kernel: ProfiledKernel) -> Iterator[ProfileAdvice]:
    possible, achieved = kernel.theoretical_occupancy_percent, kernel.occupancy_percent
    if not possible or achieved is None or achieved >= _UNEVEN * possible:
        return
    text = f"{achieved:.0f} % of the warps were there where {possible:.0f} % fit: blocks of unequal length, or too few"
    yield ProfileAdvice("uneven", text, "sm__warps_active", WAVES, achieved, (1 - achieved / possible) / 4)


def static_advice(emulated: EmulateVerdict) -> tuple[ProfileAdvice, ...]:
    """The remarks of every launch, the largest share of its modelled clocks first."""
    several = len(emulated.launches) > 1
    found = [
        ProfileAdvice(
            remark.kind,
            remark.message,
            metric="modelled clocks",
            reference=REFERENCES.get(remark.kind, PROFILE),
            value=round(100 * remark.share, 1),
            weight=remark.share,
            kernel=f"launch {number}, {_place(remark, emulated.path)}" if several else _place(remark, emulated.path),
        )
        for number, launch in enumerate(emulated.launches)
        for remark in (launch.profile.advice if launch.profile else ())
    ]
    return tuple(sorted(found, key=lambda remark: -remark.weight))


def _place(remark: EmulatedAdvice, path: str) -> str:
    if not remark.line:
        return "no known line"
    return f"line {remark.line}" if remark.file == Path(path).name else f"{remark.file}:{remark.line}"

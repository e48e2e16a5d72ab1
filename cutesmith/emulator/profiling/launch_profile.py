"""What a profiled launch did, by Python line: instructions, bytes, sectors, bank conflicts, tensor-core operations.

Instructions are counted over the whole launch; requests of warps are those of a sample, scaled by how often their
instruction was executed. Caches, latency and overlap are not modelled.
"""

from __future__ import annotations

import linecache
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cutesmith.emulator.profiling.instruction_classes import (
    CLASSES,
    flops_of,
    has_cheaper_form,
    machine_instructions_of,
    macs_of,
    tensor_cycles_of,
)
from cutesmith.emulator.profiling.requests import SECTOR, Requests, requests_of
from cutesmith.emulator.profiling.sampling import Sample, executions
from cutesmith.emulator.program.abi import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_WINDOW,
    WARP,
    WINDOW_BYTES,
    Access,
    Array,
    Space,
)
from cutesmith.emulator.ptx.printer import location_in

_WINDOWS = {Space.SHARED: SHARED_WINDOW, Space.LOCAL: LOCAL_WINDOW, Space.PARAM: PARAMETER_WINDOW}
_KINDS = {Access.READ: "read", Access.WRITE: "write", Access.ATOMIC: "atomic"}


@dataclass
class AccessProfile:
    """Accesses of a line to one space, by lanes of `size` bytes each: totals over the launch, scaled from the sample.

    `space` is "global", "shared", "local" or "const", `kind` "read", "write" or "atomic". Sectors are of global
    accesses, wavefronts of shared ones; the ideal is what the distinct bytes of each request need. `lane_stride`:
    bytes between consecutive lanes where most agree. `contention`: most lanes of a request at one address.
    """

    space: str
    kind: str
    size: int
    opcode: str
    requests: float = 0.0
    bytes: float = 0.0
    sectors: float = 0.0
    ideal_sectors: float = 0.0
    wavefronts: float = 0.0
    ideal_wavefronts: float = 0.0
    lane_stride: int | None = None
    contention: int = 0

    @property
    def bulk(self) -> bool:
        """Whether it is a bulk copy (TMA), which is not a request of a warp."""
        return self.size > SECTOR


@dataclass
class LineProfile:
    """What one Python line did: lane- and warp-instructions by class, operations, accesses.

    `line` is 0 for instructions without a known line. `warp_counts` and `lane_counts`: by class. `reducible`: of the
    warp-instructions, those that have a cheaper form.
    """

    file: str
    line: int
    lane_counts: Counter[str] = field(default_factory=Counter)
    warp_counts: Counter[str] = field(default_factory=Counter)
    reducible: Counter[str] = field(default_factory=Counter)
    flops: int = 0
    macs: float = 0.0
    tensor_cycles: float = 0.0
    accesses: list[AccessProfile] = field(default_factory=list)

    @property
    def warp_instructions(self) -> int:
        """Warp-instructions of all classes."""
        return sum(self.warp_counts.values())

    @property
    def lane_instructions(self) -> int:
        """Lane-instructions of all classes."""
        return sum(self.lane_counts.values())


@dataclass
class LaunchProfile:
    """The profile of a launch: its lines, the busiest first, and what they were sampled from.

    `blocks` of those `launched` were sampled (0: no access was made), `complete`: whether all that they did is there.
    """

    lines: list[LineProfile]
    launched: int
    blocks: int
    complete: bool
    local_bytes: int
    threads_per_block: int

    @property
    def lane_counts(self) -> dict[str, int]:
        """Lane-instructions by class, over all lines; classes that did not occur are left out."""
        return _by_class(line.lane_counts for line in self.lines)

    @property
    def warp_counts(self) -> dict[str, int]:
        """Warp-instructions by class, over all lines."""
        return _by_class(line.warp_counts for line in self.lines)

    def accesses(self) -> Iterator[tuple[LineProfile, AccessProfile]]:
        """All accesses with their line."""
        return ((line, access) for line in self.lines for access in line.accesses)

    def moved(self) -> dict[str, float]:
        """Bytes that lanes moved, by "global read", "shared write", …; asynchronous copies count on both sides."""
        sums: dict[str, float] = defaultdict(float)
        for _, access in self.accesses():
            sums[f"{access.space} {access.kind}"] += access.bytes
        return dict(sums)


def _by_class(counts: Iterable[Counter[str]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part)
    return {name: total[name] for name in CLASSES if total[name]}


def profile_of(sample: Sample, file: str | Path) -> LaunchProfile:
    """The profile by lines of `file`: an instruction belongs to the innermost of its callers there.

    The DSL gives loop control and some library calls the line of the host function's decorator, where nothing runs:
    these belong to no line (0).
    """
    lines: dict[tuple[str, int], LineProfile] = {}
    by_site = []
    for instruction in sample.program.instructions:
        place = location_in(instruction.location, file)
        known = place is not None and not linecache.getline(place.file, place.line).lstrip().startswith("@")
        key = (Path(place.file).name, place.line) if place and known else ("", 0)
        by_site.append(lines.setdefault(key, LineProfile(*key)))
    _count(sample, by_site)
    _measure(sample, by_site)
    busy = [line for line in lines.values() if line.warp_instructions]
    busy.sort(key=lambda line: -line.warp_instructions)
    local = sample.program.local_bytes
    return LaunchProfile(busy, sample.seen, sample.blocks, sample.complete, local, sample.threads_per_block)


def _count(sample: Sample, by_site: list[LineProfile]) -> None:
    """Add how often every instruction was executed to its line."""
    lanes, warps = executions(sample.program, sample.lane_counts), executions(sample.program, sample.warp_counts)
    for instruction, line, times, issues in zip(sample.program.instructions, by_site, lanes, warps, strict=True):
        if issues:
            for kind, number in machine_instructions_of(instruction).items():
                line.lane_counts[kind] += int(times) * number
                line.warp_counts[kind] += int(issues) * number
                line.reducible[kind] += int(issues) * number * has_cheaper_form(instruction)
            line.flops += int(times) * flops_of(instruction)
            line.macs += int(issues) * macs_of(instruction)
            line.tensor_cycles += int(issues) * tensor_cycles_of(instruction)


def _measure(sample: Sample, by_site: list[LineProfile]) -> None:
    """Add the requests of every instruction to its line."""
    program, log = sample.program, _joined(sample)
    if not len(log["lane"]):
        return
    lanes = np.arange(int(log["lane"].max()) + 1)
    in_block = lanes % sample.threads_per_block
    warps = lanes // sample.threads_per_block * -(-sample.threads_per_block // WARP) + in_block // WARP
    whole, sampled = executions(program, sample.lane_counts), executions(program, sample.sampled_counts)
    found: dict[tuple[int, str, str, int], AccessProfile] = {}
    for (site, space, kind, size), rows in _groups(log):
        if program.instructions[site].opcode == "call":
            continue  # printf reads its arguments
        requests = requests_of(log["lane"][rows], log["address"][rows], size, warps, in_block % WARP)
        line = by_site[site]
        key = (id(line), space, kind, size)
        if key not in found:
            found[key] = AccessProfile(space, kind, size, program.instructions[site].opcode)
            line.accesses.append(found[key])
        _add(found[key], requests, whole[site] / sampled[site] if sampled[site] else 1.0)


def _joined(sample: Sample) -> dict[str, Array]:
    """The sample as one array a field, generic addresses in their space."""
    names = ("site", "lane", "address", "space", "kind", "bytes")
    none: dict[str, Array] = {name: np.zeros(0, np.uint64 if name == "address" else np.int64) for name in names}
    parts = sample.accesses or [none]
    log = {name: np.concatenate([part[name] for part in parts]) for name in names}
    generic = log["space"] == Space.GENERIC
    log["space"] = np.where(generic, Space.GLOBAL, log["space"])
    for space, start in _WINDOWS.items():
        inside = generic & (log["address"] - np.uint64(start) < np.uint64(WINDOW_BYTES))
        log["space"] = np.where(inside, space, log["space"])
    return log


def _groups(log: dict[str, Array]) -> Iterator[tuple[tuple[int, str, str, int], Array]]:
    """Rows of the log by instruction, space, kind and bytes; parameters and mbarriers are left out.

    What is done to an mbarrier (mbarrier) moves no data, and how often a wait tries is the emulator's schedule.
    """
    columns = [log[name].astype(np.int64) for name in ("site", "space", "kind", "bytes")]
    keys, group = np.unique(np.stack(columns), axis=1, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    bounds = np.searchsorted(group.ravel()[order], np.arange(keys.shape[1] + 1))
    for number, (site, space, kind, size) in enumerate(keys.T.tolist()):
        if space != Space.PARAM and kind != Access.MBARRIER:
            key = (site, Space(space).name.lower(), _KINDS[Access(kind)], size)
            yield key, order[bounds[number] : bounds[number + 1]]


def _add(access: AccessProfile, requests: Requests, scale: float) -> None:
    if access.lane_stride is None:
        access.lane_stride = requests.lane_stride()
    access.requests += scale * requests.count
    access.bytes += scale * requests.accesses * requests.size
    access.contention = max(access.contention, int(requests.contention().max(initial=0)))
    if access.space == "shared" and not access.bulk:
        access.wavefronts += scale * int(requests.wavefronts().sum())
        access.ideal_wavefronts += scale * int(requests.ideal_wavefronts().sum())
    elif access.space == "global":
        access.sectors += scale * int(requests.sectors().sum())
        access.ideal_sectors += scale * int(requests.ideal_sectors().sum())

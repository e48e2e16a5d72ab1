"""The profiler as an observer of launches: how often each warp runs each basic block, and a sample of the accesses.

Native code writes the accesses of the sampled lanes to a log that is emptied after every run; what handlers access
(asynchronous copies, matrix loads, atomics) is written down by the memory that they are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.observation import Executors
from cutesmith.emulator.machine.scheduler import NativeCode
from cutesmith.emulator.native.logs import Instrumentation, accesses, new_log
from cutesmith.emulator.program.abi import Access, Array, Context, Space
from cutesmith.emulator.program.basic_blocks import Program, SuspensionPoint
from cutesmith.emulator.state.geometry import Geometry
from cutesmith.emulator.state.wave import Wave

MOST_ACCESSES = 2_000_000
_LOG_RECORDS = 1 << 20


@dataclass
class Sample:
    """What a profiled launch did.

    `lane_counts`, `warp_counts`: how often lanes and warps ran each basic block, over the whole launch; a warp counts
    once for as many of its lanes as run together, taken to be the busiest lane's count. `sampled_counts`: of the
    sampled lanes, as long as they were sampled. `accesses`: of `logs.accesses`, in order; lanes are counted through the
    sampled blocks. `blocks`: how many were sampled, `complete`: whether all they did is there. `seen`: blocks so far.
    """

    program: Program
    threads_per_block: int
    accesses: list[dict[str, Array]] = field(default_factory=list)
    blocks: int = 0
    complete: bool = True
    seen: int = 0

    def __post_init__(self) -> None:
        shape = (3, len(self.program.basic_blocks))
        self.lane_counts, self.warp_counts, self.sampled_counts = np.zeros(shape, np.int64)

    @property
    def taken(self) -> int:
        """Accesses in the sample."""
        return sum(len(part["lane"]) for part in self.accesses)

    @property
    def whole(self) -> bool:
        """Whether every block so far is in the sample, with all that it did."""
        return self.complete and self.blocks == self.seen


class Profiler:
    """Profiles every launch; `samples` are in their order.

    All blocks are sampled while their accesses are no more than `most_accesses`. Where the first wave has more, half of
    its blocks leave the sample, as often as needed; a later wave that does not fit stays out as a whole.
    """

    instrumentation = Instrumentation(profile=True, count_lanes=True, accesses=True)

    def __init__(self, *, most_accesses: int = MOST_ACCESSES) -> None:
        self.samples: list[Sample] = []
        self._most_accesses = most_accesses
        self._launch: Geometry | None = None

    @contextmanager
    def watch(self, geometry: Geometry, wave: Wave, executors: Executors) -> Iterator[Executors]:
        """Count in every wave of a launch, and sample as many of its blocks as is affordable."""
        if geometry is not self._launch:
            self._launch = geometry
            self.samples.append(Sample(wave.program, wave.threads_per_block))
        sample = self.samples[-1]
        counts = np.zeros((len(wave.program.basic_blocks), wave.lane_count), np.uint32)
        wave.context[Context.LANE_COUNTS] = counts.ctypes.data
        sampling = _Sampling(executors.native, wave, sample, counts, self._most(sample, len(wave.blocks)))
        try:
            yield Executors(sampling, cast("Memory", _LoggedMemory(executors.memory, sampling)))
        finally:
            sampling.end()
            sample.seen += len(wave.blocks)
            sample.lane_counts += counts.sum(axis=1, dtype=np.int64)
            busiest = np.where(wave.members >= 0, counts[:, np.maximum(wave.members, 0)], 0).max(axis=2)
            sample.warp_counts += busiest.sum(axis=1, dtype=np.int64)

    def _most(self, sample: Sample, blocks: int) -> int:
        """Accesses to take of a wave: later launches get what is left, and some in any case; 0: none of its blocks."""
        left = self._most_accesses - sum(other.taken for other in self.samples if other is not sample)
        most = max(left, self._most_accesses // 20) - sample.taken
        fits = sample.whole and sample.taken * blocks <= most * sample.blocks
        return most if fits or not sample.seen else 0


class _Sampling:
    """Native code that logs the accesses of the first lanes of a wave, of fewer and fewer where they are too many."""

    def __init__(self, native: NativeCode, wave: Wave, sample: Sample, counts: Array, most: int) -> None:
        self._native, self._wave, self._sample, self._counts, self._most = native, wave, sample, counts, most
        self.sampled_lanes = len(wave.blocks) * wave.threads_per_block if most else 0
        self._log = new_log(_LOG_RECORDS if most else 0)
        self._taken, self._count = list[dict[str, Array]](), 0

    def run(self, basic_block: int, context: Array, lanes: Array) -> None:
        """As NativeCode.run: sampled lanes a few at a time, so that the log holds all that they do."""
        sampled = lanes < self.sampled_lanes
        mine, others = lanes[sampled], lanes[~sampled]
        if len(others):
            self._native.run(basic_block, context, others)
        while len(mine):
            # a lane passes a basic block once for each back edge: all accesses of the chunk fit into the log
            program = self._wave.program
            region = program.regions[basic_block]
            sites = sum(len(program.basic_blocks[number].instructions) for number in region.basic_blocks)
            passes = 1 + int(context[Context.FUEL]) if region.back_edges else 1
            chunk = max(32, _LOG_RECORDS // max(1, sites * passes))
            self._run_logged(basic_block, context, mine[:chunk])
            mine = mine[chunk:]

    def _run_logged(self, basic_block: int, context: Array, lanes: Array) -> None:
        if not self.sampled_lanes:
            return self._native.run(basic_block, context, lanes)
        self._log[0] = 0
        context[Context.ACCESS_LOG] = self._log.ctypes.data
        self._native.run(basic_block, context, lanes)
        context[Context.ACCESS_LOG] = 0
        if self._log[0] > self._log[1]:  # a loop longer than the log: what was lost cannot be scaled
            self._sample.complete = False
        self._add({name: values.copy() for name, values in accesses(self._log).items()})
        return None

    def _add(self, part: dict[str, Array]) -> None:
        """Keep accesses of sampled lanes, and sample fewer blocks where these are too many."""
        part = _of_lanes(part, self.sampled_lanes)
        if not len(part["lane"]):
            return
        self._taken.append(part)
        self._count += len(part["lane"])
        while self._count >= self._most and self.sampled_lanes:
            blocks = self.sampled_lanes // self._wave.threads_per_block
            if self._sample.seen:  # of a later wave all blocks or none
                self.sampled_lanes, self._taken, self._count = 0, [], 0
            elif blocks == 1:
                self._sample.complete = False
                self.end()
            else:
                self.sampled_lanes = blocks // 2 * self._wave.threads_per_block
                self._taken = [_of_lanes(each, self.sampled_lanes) for each in self._taken]
                self._count = sum(len(each["lane"]) for each in self._taken)

    def end(self) -> None:
        """Take no more: the sample covers what the sampled lanes have run until now."""
        if self.sampled_lanes:
            sample, before = self._sample, self._sample.blocks * self._wave.threads_per_block
            sample.accesses += [{**part, "lane": part["lane"] + before} for part in self._taken]
            sample.sampled_counts += self._counts[:, : self.sampled_lanes].sum(axis=1, dtype=np.int64)
            sample.blocks += self.sampled_lanes // self._wave.threads_per_block
            self.sampled_lanes = 0

    def note(self, lanes: Array, space: Space, addresses: Array, size: int, kind: Access, site: int) -> None:
        """Accesses of a handler."""
        chosen = np.asarray(lanes) < self.sampled_lanes
        if not chosen.any():
            return
        count = int(chosen.sum())
        same = {"site": site, "space": int(space), "kind": int(kind), "bytes": size}
        part: dict[str, Array] = {name: np.full(count, value, np.int64) for name, value in same.items()}
        part["lane"] = np.asarray(lanes)[chosen].astype(np.int32)
        part["address"] = np.asarray(addresses)[chosen].astype(np.uint64)
        self._add(part)


def _of_lanes(part: dict[str, Array], count: int) -> dict[str, Array]:
    """The accesses of the first `count` lanes."""
    chosen = part["lane"] < count
    return part if chosen.all() else {name: values[chosen] for name, values in part.items()}


class _LoggedMemory:
    """The memory of a launch, whose handlers' accesses are sampled."""

    def __init__(self, memory: Memory, sampling: _Sampling) -> None:
        self._memory, self._sampling = memory, sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, lanes: Array, space: Space, addresses: Array, size: int, site: int) -> Array:
        """As Memory.load."""
        self._sampling.note(lanes, space, addresses, size, Access.READ, site)
        return self._memory.load(lanes, space, addresses, size, site)

    def store(self, lanes: Array, space: Space, addresses: Array, data: Array, site: int) -> None:
        """As Memory.store."""
        self._sampling.note(lanes, space, addresses, data.shape[1], Access.WRITE, site)
        self._memory.store(lanes, space, addresses, data, site)

    def pointers(self, lanes: Array, space: Space, addresses: Array, size: int, kind: Access, site: int) -> Array:
        """As Memory.pointers."""
        self._sampling.note(lanes, space, addresses, size, kind, site)
        return self._memory.pointers(lanes, space, addresses, size, kind, site)


def executions(program: Program, counts: Array) -> Array:
    """int64 (instructions,): how often each instruction was executed, guarded ones included, by basic block counts."""
    times = np.zeros(len(program.instructions), np.int64)
    for basic_block in program.basic_blocks:
        for instruction in basic_block.instructions:
            times[instruction.number] += counts[basic_block.number]
        if isinstance(basic_block.end, SuspensionPoint):
            times[basic_block.end.instruction.number] += counts[basic_block.number]
        elif basic_block.instructions:
            following = basic_block.instructions[-1].number + 1
            if following < len(times) and program.instructions[following].opcode in ("bra", "brx", "ret", "exit"):
                times[following] += counts[basic_block.number]
    return times

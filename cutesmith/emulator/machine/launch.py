"""A recorded launch, executed: checked against the limits, split into waves of whole clusters, run wave by wave."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod

import numpy as np

from cutesmith.devices import RESERVED_SMEM_PER_BLOCK, SMEM_ALLOCATION_UNIT, SmVersion, occupancy
from cutesmith.emulator.errors import EndlessLoop, LaunchRefused
from cutesmith.emulator.faults import Finding
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.observation import Executors, Observer
from cutesmith.emulator.machine.rings import longest
from cutesmith.emulator.machine.scheduler import NativeCode, Scheduler, suspensions_of
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.machine.suspensions import Suspension
from cutesmith.emulator.program.abi import SHARED_BASE, SHARED_UNIT, Array, Context, preempted_at
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.spinning import waits_for_other_blocks
from cutesmith.emulator.state.findings import Findings, Printed
from cutesmith.emulator.state.geometry import Geometry, blocks_of, members, registers_read, special_registers
from cutesmith.emulator.state.wave import Wave
from cutesmith.recording.cubin import CubinKernel, source_name
from cutesmith.recording.gpu_size import multiprocessors
from cutesmith.recording.launch_limits import launch_shape, refusals
from cutesmith.recording.sessions import Launch
from cutesmith.verdicts import MbarrierRing

_PARAMETER_ALIGN = 128  # a tensor map in a parameter is aligned to 64 bytes


@dataclass(frozen=True, kw_only=True)
class LaunchReport:
    """What an executed launch did.

    `basic_block_counts`: how often a lane ran each basic block of `program`; they give `instructions`. `steps` are
    those of Settings.step_limit. `waves` ran one after another. `completed` is False when a fault ended it.
    `unused_reads`: reads of uninitialised memory on which nothing depends (machine/consequences.py). `resources`: what
    the cubin says of the kernel. `rings`: the mbarriers of a block (machine/rings.py).
    """

    kernel: str
    launch: Launch
    resources: CubinKernel
    program: Program
    findings: tuple[Finding, ...]
    lost_findings: int
    printed: str
    seconds: float
    steps: int
    waves: int
    basic_block_counts: tuple[int, ...]
    completed: bool
    unused_reads: tuple[Finding, ...] = ()
    rings: tuple[MbarrierRing, ...] = ()

    @property
    def instructions(self) -> int:
        """Lane-instructions: every PTX instruction counted once for each thread that executed it."""
        lengths = [len(basic_block.instructions) + 1 for basic_block in self.program.basic_blocks]
        return sum(count * length for count, length in zip(self.basic_block_counts, lengths, strict=True))


@dataclass
class LaunchRun:
    """A launch being executed: its program and machine code, memory, settings, and what has come of it so far.

    `chosen`: int64 numbers of the clusters to run; None: all.
    """

    program: Program
    native: NativeCode
    launch: Launch
    kernel: CubinKernel
    sm: SmVersion
    memory: Memory
    settings: Settings
    grid_id: int = 0
    observer: Observer | None = None
    chosen: Array | None = None
    findings: Findings = field(init=False)
    printed: Printed = field(default_factory=Printed)
    steps: int = 0
    waves: int = 0
    seconds: float = 0.0
    completed: bool = False
    rings: tuple[MbarrierRing, ...] = ()

    def __post_init__(self) -> None:
        self.findings = Findings(source_name(self.launch.kernel))
        self._counts = np.zeros(len(self.program.basic_blocks), np.uint64)
        self._parameters = _parameter_buffer(self.program, self.launch)
        self._registers_read = registers_read(self.program)
        self._read_first = rows_read_first(self.program)
        self._waiting: deque[tuple[int, int, int]] = deque()

    def run(self) -> LaunchReport:
        """Execute the launch; the report of what was done until an error ended it is `report()`.

        Raises LaunchRefused, KernelFault, EndlessLoop, UnsupportedInstruction.
        """
        started = time.perf_counter()
        refuse_over_limits(self.launch, self.kernel, self.sm)
        suspensions = suspensions_of(self.program)
        try:
            with _collection_between_waves() as collect:
                for clusters in self._waves():
                    self._run_wave(clusters, suspensions)
                    collect()
            self.completed = True
        finally:
            self.seconds = time.perf_counter() - started
        return self.report()

    def report(self) -> LaunchReport:
        """What was done so far."""
        return LaunchReport(
            kernel=self.findings.kernel,
            launch=self.launch,
            resources=self.kernel,
            program=self.program,
            findings=self.findings.all,
            lost_findings=self.findings.lost,
            printed="".join(self.printed.texts),
            seconds=self.seconds,
            steps=self.steps,
            waves=self.waves,
            basic_block_counts=tuple(self._counts.tolist()),
            completed=self.completed,
            rings=self.rings,
        )

    @cached_property
    def geometry(self) -> Geometry:
        """Where the threads of the launch are."""
        shared = self.shared_bytes - SHARED_BASE
        return Geometry(
            grid=self.launch.grid,
            block=self.launch.block,
            cluster=self.launch.cluster,
            dynamic_shared=self.launch.dynamic_smem,
            total_shared=-(-shared // SMEM_ALLOCATION_UNIT) * SMEM_ALLOCATION_UNIT,
            multiprocessors=multiprocessors(self.sm),
            warps_per_multiprocessor=self.sm.warps_per_sm,
            reserved_shared=RESERVED_SMEM_PER_BLOCK,
            grid_id=self.grid_id,
        )

    @property
    def shared_bytes(self) -> int:
        """Bytes of a block's shared memory, SHARED_BASE included."""
        program = self.program
        end = SHARED_BASE + program.static_shared
        starts = [program.shared_symbols[name] for name in program.dynamic_symbols]
        return max([end + self.launch.dynamic_smem, *(start + self.launch.dynamic_smem for start in starts)])

    @property
    def resident_blocks(self) -> int:
        """How many blocks the GPU holds at once."""
        return self.settings.resident_blocks or resident_blocks(self.launch, self.kernel, self.sm)

    def _waves(self) -> Iterator[Array]:
        """int64 numbers of the clusters of each wave, of all or of the chosen ones.

        Where blocks may cancel launches, half of the clusters start at first, or as many as the GPU holds: the others
        can be taken from.
        """
        geometry = self.geometry
        by_lanes = self.settings.lanes_per_wave // geometry.threads
        by_shared = self.settings.shared_bytes_per_wave // max(1, self.shared_bytes)
        blocks = min(by_lanes, by_shared)
        if waits_for_other_blocks(self.program) or self.launch.attributes.get("cooperative"):
            blocks = self.resident_blocks
        clusters = max(1, blocks // geometry.cluster_blocks)
        if takes_other_clusters(self.program):
            held = self.resident_blocks // geometry.cluster_blocks
            clusters = max(1, min(clusters, self._clusters // 2, held))
        waves = -(-self._clusters // clusters)
        bounds = [wave * self._clusters // waves for wave in range(waves + 1)]
        numbers = np.arange(self._clusters) if self.chosen is None else self.chosen
        firsts = blocks_of(geometry, numbers)[:: geometry.cluster_blocks]
        self._waiting = deque((int(x), int(y), int(z)) for x, y, z in firsts)
        by_first = dict(zip(self._waiting, numbers.tolist(), strict=True))
        for first, last in zip(bounds, bounds[1:], strict=False):
            taken = [self._waiting.popleft() for _ in range(min(last - first, len(self._waiting)))]
            if taken:
                yield np.array([by_first[cluster] for cluster in taken], np.int64)

    @property
    def _clusters(self) -> int:
        return self.geometry.clusters if self.chosen is None else len(self.chosen)

    def _run_wave(self, clusters: Array, suspensions: tuple[Suspension, ...]) -> None:
        wave = self._wave(clusters)
        self.waves += 1
        executors = Executors(self.native, self.memory)
        watched = self.observer.watch(self.geometry, wave, executors) if self.observer else nullcontext(executors)
        with watched as (native, memory):
            scheduler = Scheduler(wave, memory, native, self.settings, suspensions, self.steps)
            try:
                scheduler.run()
            except EndlessLoop as error:
                if not self._waiting:
                    raise
                absent = len(self._waiting) * self.geometry.cluster_blocks
                hint = f"{absent} blocks have not started: a GPU holds {self.resident_blocks} of them at once, and "
                hint += f"none that run may wait for one that has not started. {error.hint}"
                raise EndlessLoop(error.message, hint=hint) from None
            finally:
                self.steps = scheduler.steps
                self.rings = longest((*self.rings, *scheduler.rings))

    def _wave(self, numbers: Array) -> Wave:
        geometry = self.geometry
        blocks = blocks_of(geometry, numbers)
        lanes, lent, fill = len(blocks) * geometry.threads, self.memory.lent, self.settings.fill
        stride = -(-self.shared_bytes // SHARED_UNIT) * SHARED_UNIT
        block_of_lane = np.repeat(np.arange(len(blocks), dtype=np.uint32), geometry.threads)
        frame = lent.take("frame", (max(1, self.program.slot_count), lanes), np.uint64, fill=None)
        frame[self._read_first] = 0  # others are written before they are read
        wave = Wave(
            program=self.program,
            frame=frame,
            special=special_registers(geometry, blocks, self._registers_read),
            block_of_lane=block_of_lane,
            cluster_of_lane=block_of_lane // geometry.cluster_blocks * geometry.cluster_blocks,
            blocks=blocks,
            members=members(len(blocks), geometry.threads),
            status=np.full(lanes, preempted_at(0), np.int32),
            threads_per_block=geometry.threads,
            shared=lent.take("shared", (len(blocks), stride), np.uint8, fill),
            local=lent.take("local", (lanes, self.program.local_bytes), np.uint8, fill),
            parameters=self._parameters,
            counts=self._counts,
            cluster_blocks=geometry.cluster_blocks,
            findings=self.findings,
            printed=self.printed,
            module_symbols=self.memory.module_symbols,
            tensor_core_sm=self.settings.tensor_core_sm,
            waiting_clusters=self._waiting,
            registers=self.kernel.registers if self.kernel.moves_registers else 0,
        )
        words = {
            Context.FRAME: wave.frame.ctypes.data,
            Context.LANES: wave.lane_count,
            Context.STATUS: wave.status.ctypes.data,
            Context.SPECIAL: wave.special.ctypes.data,
            Context.PARAMETERS: wave.parameters.ctypes.data,
            Context.COUNTS: wave.counts.ctypes.data,
            Context.BLOCK_OF_LANE: wave.block_of_lane.ctypes.data,
            Context.CLUSTER_OF_LANE: wave.cluster_of_lane.ctypes.data,
            Context.SHARED: wave.shared.ctypes.data,
            Context.SHARED_BYTES: self.shared_bytes,
            Context.SHARED_STRIDE: stride,
            Context.LOCAL: wave.local.ctypes.data,
            Context.LOCAL_BYTES: wave.local.shape[1],
            Context.CLUSTER_BLOCKS: wave.cluster_blocks,
        }
        for word, value in words.items():
            wave.context[word] = value
        self.memory.attach(wave)
        return wave


@contextmanager
def _collection_between_waves() -> Iterator[Callable[[], object]]:
    """Look for garbage cycles after each wave, and only among what is new: else 9 % of the time of a TMA copy."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield partial(gc.collect, 0)
    finally:
        if collects:
            gc.enable()


def takes_other_clusters(program: Program) -> bool:
    """Whether its blocks may take over the work of clusters that have not started."""
    return any(instruction.opcode == "clusterlaunchcontrol" for instruction in program.instructions)


def rows_read_first(program: Program) -> Array:
    """Rows of the frame of registers that a thread may read before it writes them."""
    first = sorted(program.live[0])
    rows = [program.slots[name] + part for name in first for part in range(1 + (program.widths[name] > 64))]
    return np.array(rows, np.int64)


def resident_blocks(launch: Launch, kernel: CubinKernel, sm: SmVersion) -> int:
    """How many blocks of a launch a GPU of this SM version holds at once, one a multiprocessor at least."""
    shape = launch_shape(launch, kernel)
    smem = shape.static_smem + shape.dynamic_smem
    held = occupancy(sm, threads=prod(launch.block), registers=shape.registers, smem=smem).blocks
    return max(1, held) * multiprocessors(sm)


def refuse_over_limits(launch: Launch, kernel: CubinKernel, sm: SmVersion) -> None:
    """Raise LaunchRefused for a launch that a GPU of this SM version would not start."""
    reasons = refusals(launch_shape(launch, kernel), sm)
    if reasons:
        raise LaunchRefused(f"sm_{sm.number} refuses to launch {source_name(launch.kernel)}: {'; '.join(reasons)}")


def _parameter_buffer(program: Program, launch: Launch) -> Array:
    """The launch's parameters at their offsets, in a buffer aligned for tensor maps."""
    size = max(1, program.parameter_bytes)
    raw = np.zeros(size + _PARAMETER_ALIGN, np.uint8)
    start = -raw.ctypes.data % _PARAMETER_ALIGN
    buffer = raw[start : start + size]
    for variable, data in zip(program.function.parameters, launch.parameters, strict=True):
        offset = program.parameters[variable.name]
        buffer[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
    return buffer

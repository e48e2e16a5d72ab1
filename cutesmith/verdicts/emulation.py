"""The verdict of the emulated GPU on one call of a kernel: launches, faults, profiles, the trace of a warp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cutesmith.verdicts.base import ExitCode, Verdict
from cutesmith.verdicts.violations import FaultKind


@dataclass(frozen=True, kw_only=True)
class EmulatedFault:
    """One finding of the emulated GPU: its kind, a sentence, the line of the kernel's file, who met it first.

    `where` is "kernel.py:31", `other` the line of the other access of a race; `count` how often it was found.
    """

    kind: FaultKind
    message: str
    where: str
    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    other: str = ""
    count: int = 1

    @property
    def place(self) -> str:
        """Such as "race at kernel.py:31"."""
        return f"{self.kind.words} at {self.where}"


MOST_PLACES = 3  # of further faults, that a summary names


def told(faults: Sequence[EmulatedFault]) -> str:
    """At least one fault in the order in which they were found: the first in whole, as it may explain the others."""
    first, *others = faults
    places = ", ".join(fault.place for fault in others[:MOST_PLACES])
    more = f" and {len(others) - MOST_PLACES} more" if len(others) > MOST_PLACES else ""
    return f"{first.place}: {first.message}" + (f"; after it {places}{more}" if others else "")


@dataclass(frozen=True, kw_only=True)
class EmulatedAccess:
    """Accesses of a line to one space by lanes of some bytes each.

    `requests` and `bytes` are totals over the launch, scaled from the sample. Sectors are of global accesses,
    wavefronts of shared ones, None (left out in JSON) where none was counted; the ideal is what the distinct bytes of a
    request need. `lane_stride_bytes`: between consecutive lanes where most agree.
    """

    space: str
    kind: str
    instruction: str
    bytes_per_lane: int
    lane_stride_bytes: int | None
    requests: int
    bytes: int
    lanes_at_one_address: int
    sectors_per_request: float | None = None
    ideal_sectors_per_request: float | None = None
    wavefronts_per_request: float | None = None
    ideal_wavefronts_per_request: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Ready for `strict_json`."""
        return {name: value for name, value in vars(self).items() if value is not None or "_per_request" not in name}


@dataclass(frozen=True, kw_only=True)
class EmulatedLine:
    """What one Python line did: instructions by class, operations, accesses, modelled clocks in all pipes.

    `line` is 0 for instructions without a known line.
    """

    file: str
    line: int
    lane_instructions: dict[str, int]
    warp_instructions: dict[str, int]
    flops: int
    tensor_core_macs: int
    accesses: tuple[EmulatedAccess, ...]
    clocks: float


@dataclass(frozen=True)
class EmulatedAdvice:
    """A remark on a line: `share` is the part of the launch's modelled clocks that is at stake."""

    file: str
    line: int
    kind: str
    share: float
    message: str


@dataclass(frozen=True, kw_only=True)
class EmulatedProfile:
    """What a launch did, by line; `clocks` are modelled ones by pipe, the busiest first.

    `bytes` that lanes moved are by "global read", "shared write", …; `sampled_blocks` of its `blocks` were looked at
    for requests, `sample_complete`: with all that they did. `floor_us`: what the busiest pipe takes at least.
    """

    lane_instructions: dict[str, int]
    warp_instructions: dict[str, int]
    flops: int
    tensor_core_macs: int
    bytes: dict[str, int]
    local_bytes_per_thread: int
    blocks: int
    sampled_blocks: int
    sample_complete: bool
    lines: tuple[EmulatedLine, ...]
    advice: tuple[EmulatedAdvice, ...]
    clocks: dict[str, float]
    floor_us: float


@dataclass(frozen=True, order=True)
class MbarrierRing:
    """An array of mbarriers: its first byte in shared memory, its stages, and the phases that ended in one block.

    `trips`: of the block with the most, over all stages. `filled`: bytes were counted, as a copy engine does.
    """

    first: int
    stages: int
    filled: bool
    trips: int

    @property
    def wrapped(self) -> bool:
        """Whether a block went round it more than once."""
        return self.trips > self.stages

    def to_dict(self) -> dict[str, object]:
        """Ready for `strict_json`."""
        return vars(self)


@dataclass(frozen=True, kw_only=True)
class EmulatedLaunch:
    """One launch as the emulated GPU executed it; `seconds` are of this machine's CPU.

    `instructions` are lane-instructions, `waves` how often the machine was filled with blocks. `rings`:
    of mbarriers, those of one stage left out. Without `--profile`,
    `profile` is None, an empty object in JSON.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    instructions: int
    waves: int
    seconds: float
    completed: bool
    printed: str = ""
    faults: tuple[EmulatedFault, ...] = ()
    rings: tuple[MbarrierRing, ...] = ()
    profile: EmulatedProfile | None = None

    def to_dict(self) -> dict[str, object]:
        """Ready for `strict_json`."""
        return {**vars(self), "profile": self.profile or {}}


@dataclass(frozen=True)
class TraceStep:
    """One instruction of a warp: its line ("kernel.py:31"), bit l of `mask` for lane l, registers that it set."""

    where: str
    instruction: str
    mask: int
    values: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The least time of the only launch on one product: its tensors' bytes at `bytes_per_second`, its busiest pipe.

    `source` says where that rate is from. Where the inputs were shrunk, `times` is how many bytes more the whole ones
    have, and the least time of these is that many times as long if work grows as bytes do.
    """

    product: str
    bytes_per_second: float
    source: str
    memory_us: float
    pipe_us: float
    times: float


@dataclass(frozen=True, kw_only=True)
class EmulateVerdict(Verdict):
    """What one call of `kernel_fn` did on the emulated GPU: no word on whether its result is right.

    `inputs` are what ran, `full_inputs` what `get_inputs()` gave if they were shrunk. `trace`: steps of one warp.
    `predictions`: of a profile of one launch on sm_90, for each product whose rates are known.
    """

    stage: ClassVar[str] = "emulate"

    path: str
    arch: str
    inputs: str = ""
    full_inputs: str = ""
    tensor_bytes: int = 0  # of inputs and outputs
    output_elements: int = 0
    predictions: tuple[Prediction, ...] = ()
    launches: tuple[EmulatedLaunch, ...] = ()
    trace: tuple[TraceStep, ...] = ()
    traced: str = ""  # such as "launch 0, block 0, warp 0, values of lane 0"
    hint: str = ""
    confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""

    @property
    def status(self) -> str:
        """`emulated` rather than `passed`: nothing was compared with the reference; with findings, the first's kind."""
        found = _found(self, [fault for launch in self.launches for fault in launch.faults])
        return found or ("emulated" if self.passed else super().status)


@dataclass(frozen=True)
class ScriptKernel:
    """All launches of one kernel by a script: how many, the shape of the first, lane-instructions, CPU seconds."""

    kernel: str
    launches: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    instructions: int
    seconds: float


@dataclass(frozen=True)
class ScriptFault:
    """A finding in a launch of a script: in which kernel, and in which test where the script is pytest."""

    kernel: str
    test: str
    fault: EmulatedFault


@dataclass(frozen=True)
class ScriptTest:
    """One test of a script that is pytest: its node id and outcome; `exit_code` and `reason` where it did not pass.

    `outcome`: passed, failed (an assertion), crashed, skipped, or not executed (the emulated GPU lacks what it needs).
    """

    name: str
    outcome: str
    exit_code: ExitCode = ExitCode.PASSED
    reason: str = ""
    launches: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScriptVerdict(Verdict):
    """What somebody's script did on the emulated GPU: launches by kernel, findings, tests where it is pytest."""

    stage: ClassVar[str] = "script"

    script: tuple[str, ...]
    arch: str
    kernels: tuple[ScriptKernel, ...] = ()
    faults: tuple[ScriptFault, ...] = ()
    tests: tuple[ScriptTest, ...] = ()
    notes: tuple[str, ...] = ()
    hint: str = ""
    confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""

    @property
    def status(self) -> str:
        """`emulated` rather than `passed`: the script decides what it compares; with findings, the first's kind."""
        found = _found(self, [fault.fault for fault in self.faults])
        return found or ("emulated" if self.passed else super().status)


def _found(verdict: Verdict, faults: Sequence[EmulatedFault]) -> str:
    """Such as "race" or "missing wait" where findings made the verdict; a crash is something else."""
    return faults[0].kind.words if faults and verdict.exit_code == ExitCode.CRASHED else ""

"""The result types of every stage, and nothing else.

A stage never raises for what the candidate did wrong: it returns a verdict whose `exit_code` is one of `ExitCode`.
Verdicts are plain frozen dataclasses of JSON-able fields, so that they cross process borders and land in files as they
are.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar


class ExitCode(enum.IntEnum):
    """Exit codes that every command shares (docs/design.md, "What every command does alike")."""

    PASSED = 0
    WRONG_RESULT = 1
    USAGE = 2
    LINT = 3
    DOES_NOT_COMPILE = 4
    CRASHED = 5
    TIMED_OUT = 6
    UNAVAILABLE = 7
    REJECTED = 8
    INTERNAL = 9


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text without NaN or Infinity: those become null, dataclasses become objects, enums their values."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = value.to_dict() if isinstance(value, Verdict) else dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one stage says of one kernel file: an exit code, one sentence, and how long it took (seconds)."""

    stage: ClassVar[str] = "verdict"

    exit_code: ExitCode
    summary: str
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the stage has nothing against the kernel."""
        return self.exit_code == ExitCode.PASSED

    @property
    def status(self) -> str:
        """The exit code's name in lower case: `passed`, `wrong_result`, …; a stage may be more precise (`compiled`)."""
        return self.exit_code.name.lower()

    def to_dict(self) -> dict[str, Any]:
        """Every field, with `stage` and `status` in front, ready for `strict_json`."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"stage": self.stage, "status": self.status, **fields}

    def to_json(self, *, indent: int | None = None) -> str:
        """One strict JSON object."""
        return strict_json(self.to_dict(), indent=indent)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One remark on a source line: a rule id, where, what is wrong, and the fix."""

    rule: str
    severity: str  # "error", "warning" or "note"
    line: int
    column: int
    message: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class LintVerdict(Verdict):
    """Static findings of one file."""

    stage: ClassVar[str] = "lint"

    path: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KernelReport:
    """One device kernel on one architecture, as compiled and as launched (bytes, threads, registers a thread)."""

    name: str
    arch: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    static_smem_bytes: int
    dynamic_smem_bytes: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    occupancy_blocks: int
    occupancy_percent: float
    occupancy_limit: str
    widest_global_load_bits: int
    widest_global_store_bits: int
    tensor_core_instructions: dict[str, int] = field(default_factory=dict)
    tma_instructions: dict[str, int] = field(default_factory=dict)
    code_bytes: int = 0
    launches: int = 1
    refused: tuple[str, ...] = ()  # what the hardware would refuse, one sentence each


@dataclass(frozen=True, kw_only=True)
class ArchReport:
    """All kernels of a file on one architecture; `error` holds the DSL's own code, message and line when it failed."""

    arch: str
    exit_code: ExitCode
    compile_seconds: float
    kernels: tuple[KernelReport, ...] = ()
    error_code: str = ""
    error: str = ""
    error_line: int = 0
    artifacts: dict[str, str] = field(default_factory=dict)  # "ptx", "cubin" -> path


@dataclass(frozen=True, kw_only=True)
class CompileVerdict(Verdict):
    """What every asked architecture made of the file; nothing was executed."""

    stage: ClassVar[str] = "compile"

    path: str
    archs: tuple[ArchReport, ...] = ()

    @property
    def status(self) -> str:
        """`compiled` rather than `passed`: a compile-only pass is never reported as verified."""
        return "compiled" if self.passed else super().status


@dataclass(frozen=True, kw_only=True)
class OutputError:
    """How far one output is from the float64 reference, with the worst element named."""

    output: int
    dtype: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    max_ulp: float  # in units of the output dtype's last place
    mismatches: int
    elements: int
    worst_index: tuple[int, ...] = ()
    worst_actual: float | str | None = None
    worst_expected: float | str | None = None


@dataclass(frozen=True, kw_only=True)
class CaseReport:
    """One checked set of inputs: what it was, what was wrong with it (empty when nothing)."""

    name: str
    inputs: str
    passed: bool
    problem: str = ""
    rule: str = ""  # EXPLOITS row when the case shows cheating
    outputs: tuple[OutputError, ...] = ()


VERIFIED = "verified"
VERIFIED_BY_EMULATION = "verified on the emulated GPU"


@dataclass(frozen=True, kw_only=True)
class VerifyVerdict(Verdict):
    """Whether `kernel_fn` computes `reference_fn`, where that was tried, and on which inputs."""

    stage: ClassVar[str] = "verify"

    path: str
    ran_on: str  # "gpu", "emulator", "compile"
    device: str = ""
    cases: tuple[CaseReport, ...] = ()
    rule: str = ""  # EXPLOITS row when rejected
    confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""

    @property
    def status(self) -> str:
        """`verified` only when it was executed on a GPU; `compiled` when everything but execution was checked."""
        if not self.passed:
            return super().status
        return {"compile": "compiled", "emulator": VERIFIED_BY_EMULATION}.get(self.ran_on, VERIFIED)


@dataclass(frozen=True, kw_only=True)
class EmulatedFault:
    """One finding of the emulated GPU: its kind, a sentence, the line of the kernel's file, who met it first.

    `where` is "kernel.py:31", `other` the line of the other access of a race; `count` how often it was found.
    """

    kind: str
    message: str
    where: str
    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    other: str = ""
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class EmulatedLaunch:
    """One launch as the emulated GPU executed it; `seconds` are of this machine's CPU.

    `instructions` are lane-instructions, `waves` how often the machine was filled with blocks. `profile` is empty
    without `--profile`, else emulator.profiler.as_dict with "advice", "clocks" (by pipe) and "floor_us".
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
    profile: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EmulateVerdict(Verdict):
    """What one call of `kernel_fn` did on the emulated GPU: no word on whether its result is right.

    `inputs` are what ran, `full_inputs` what `get_inputs()` gave if they were shrunk. `trace`: steps of one warp, each
    {"where", "instruction", "mask", "values"}.
    """

    stage: ClassVar[str] = "emulate"

    path: str
    arch: str
    inputs: str = ""
    full_inputs: str = ""
    tensor_bytes: int = 0  # of inputs and outputs
    launches: tuple[EmulatedLaunch, ...] = ()
    trace: tuple[dict[str, Any], ...] = ()
    traced: str = ""  # such as "launch 0, block 0, warp 0, values of lane 0"
    hint: str = ""
    confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""

    @property
    def status(self) -> str:
        """`emulated` rather than `passed`: nothing was compared with the reference."""
        return "emulated" if self.passed else super().status


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Device time of one callable: all samples, their median and quartiles (microseconds), and host time per call."""

    name: str
    samples_us: tuple[float, ...]
    median_us: float
    q1_us: float
    q3_us: float
    host_us: float | None = None
    bytes_per_second: float | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchmarkVerdict(Verdict):
    """The candidate's time beside its baselines and the measured floor of this machine."""

    stage: ClassVar[str] = "benchmark"

    path: str
    device: str = ""
    inputs: str = ""
    timings: tuple[Timing, ...] = ()  # the candidate comes first
    floor_us: float | None = None
    floor_kind: str = ""  # "bytes" or "flops"
    floor_percent: float | None = None  # 100 * floor / candidate median
    algorithmic_bytes: int | None = None
    algorithmic_flops: int | None = None
    copy_bytes_per_second: float | None = None
    matmul_flops_per_second: float | None = None  # of a large matrix product in the function's dtypes, float32 as TF32
    speedups: dict[str, float] = field(default_factory=dict)  # baseline -> baseline median / candidate median
    rule: str = ""
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True)
class GenerateVerdict(Verdict):
    """What the offline generator made of a problem: the kernel's path, the pattern, and each stage's verdict."""

    stage: ClassVar[str] = "generate"

    problem: str
    kernel: str = ""
    pattern: str = ""
    unmatched: str = ""  # the first operation that no pattern takes
    configuration: dict[str, Any] = field(default_factory=dict)
    tried: tuple[dict[str, Any], ...] = ()
    stages: tuple[dict[str, Any], ...] = ()
    state: str = ""  # the status of the kernel's verify verdict, "" without a kernel

    @property
    def status(self) -> str:
        """The kernel's own on a pass: `verified`, `verified on the emulated GPU` or `compiled`."""
        return self.state if self.passed and self.state else super().status


@dataclass(frozen=True, kw_only=True)
class AgentVerdict(Verdict):
    """What an agent's session came to: the kernel that is delivered, why it ended, what it cost.

    `median_us`, `speedups` (baseline -> factor) and `floor_percent` are of the delivered kernel, None or empty where
    nothing was timed. `candidates`: one entry a line of work, with its parent, its turns, its ending and its best
    kernel; the delivered one is the best of all of them.
    """

    stage: ClassVar[str] = "agent"

    session: str  # the session folder
    problem: str = ""
    kernel: str = ""  # the delivered file, "" when nothing passed
    sha256: str = ""
    state: str = ""  # the status of its verify verdict
    ending: str = ""  # the name of an agent.endings.Ending
    model: str = ""
    turns: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    dollars: float | None = None
    median_us: float | None = None
    speedups: dict[str, float] = field(default_factory=dict)
    floor_us: float | None = None
    floor_percent: float | None = None
    verified: int = 0  # how many different kernels passed verification
    rejected: int = 0  # how often a kernel was rejected as a cheat
    candidates: tuple[dict[str, Any], ...] = ()

    @property
    def status(self) -> str:
        """The kernel's own on a pass: `verified`, `verified on the emulated GPU` or `compiled`."""
        return self.state if self.passed and self.state else super().status


@dataclass(frozen=True, kw_only=True)
class ReferencesVerdict(Verdict):
    """What does not hold in the reference pages, and every block that was executed (name, arch, where, seconds, ok)."""

    stage: ClassVar[str] = "references"

    complaints: tuple[str, ...] = ()
    blocks: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class FoundExample:
    """One example that `find` names: what matched, what is missing, and how its architecture fits the asked one.

    `fit`: "native", "runs" (written for an older architecture), "port" (an older one whose tensor-core instructions
    must be replaced), "foreign" (needs what the asked architecture lacks), or "" when none was asked for.
    """

    id: str
    title: str
    operation: str
    arch: tuple[str, ...]
    dtypes: tuple[str, ...]
    features: tuple[str, ...]
    summary: str
    lesson: str
    source: str
    path: str
    lines: int
    licence: str
    score: float
    fit: str = ""
    matched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    note: str = ""  # one sentence where the architecture is another than asked
    meets_contract: bool = False


@dataclass(frozen=True, kw_only=True)
class FindVerdict(Verdict):
    """The nearest examples, best first; `understood` is what the query was read as, `hint` what to relax."""

    stage: ClassVar[str] = "find"

    query: str
    understood: dict[str, Any] = field(default_factory=dict)
    examples: tuple[FoundExample, ...] = ()
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class FetchedExample:
    """One example that was brought (`downloaded`, `cached`, `copied`, `unchanged`), or why not (`failed`)."""

    id: str
    origin: str  # repository, version and path
    licence: str
    sha256: str
    path: str = ""
    state: str = ""
    bytes: int = 0
    siblings: tuple[str, ...] = ()  # ids of the examples that it imports
    meets_contract: bool = False
    note: str = ""
    exit_code: ExitCode = ExitCode.PASSED
    kind: str = ""  # of examples/faults.py
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class FetchVerdict(Verdict):
    """What became of every asked example; the exit code is that of the first that failed."""

    stage: ClassVar[str] = "fetch"

    out: str
    examples: tuple[FetchedExample, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ApiVerdict(Verdict):
    """Which generated API pages differ from what the installed DSL gives, with the first differing lines of each."""

    stage: ClassVar[str] = "api"

    differing: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SearchVerdict(Verdict):
    """Sections of the references that answer a query, best first: page, heading, address, line, score, lines."""

    stage: ClassVar[str] = "search"

    query: str
    hits: tuple[dict[str, Any], ...] = ()

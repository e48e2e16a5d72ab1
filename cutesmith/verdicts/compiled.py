"""The verdict of the compiler on a kernel file, and what it is made of: kernels, their accesses, their engines."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar

from cutesmith.verdicts.base import ExitCode, Verdict


class EngineFault(enum.Enum):
    """What a kernel asks of TMA, mbarriers, tensor cores or registers, and what cannot be right."""

    WRONG_BYTES = "wrong_bytes"  # boxes that arrive at an mbarrier, and the bytes that it expects
    UNEXPECTED_BYTES = "unexpected_bytes"
    TOO_FEW_ARRIVALS = "too_few_arrivals"
    TOO_MANY_ARRIVALS = "too_many_arrivals"
    NOT_INITIALISED = "not_initialised"
    MISALIGNED = "misaligned"
    BAD_TENSOR_MAP = "bad_tensor_map"
    BAD_DESCRIPTOR = "bad_descriptor"
    WRONG_SWIZZLE = "wrong_swizzle"  # of a box, and of the descriptor that reads it
    REGISTERS = "registers"  # setmaxnreg


@dataclass(frozen=True, kw_only=True)
class EngineFinding:
    """One fault that follows from PTX and launch alone: `place` is the Python line ("kernel.py:31") or empty."""

    fault: EngineFault
    message: str
    remedy: str
    place: str = ""

    @property
    def sentence(self) -> str:
        """For people: where, what is wrong, what to do."""
        return f"{f'{self.place}: ' if self.place else ''}{self.message}. {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class EngineReport:
    """What TMA, mbarriers and tensor cores are asked for: descriptors in words, findings, what could not be decided."""

    descriptors: tuple[str, ...] = ()
    findings: tuple[EngineFinding, ...] = ()
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True)
class InnerLoop:
    """An innermost loop of a kernel: PTX instructions of a step, and its accesses to shared memory by full opcode.

    `place`: the Python line of the first of these; empty where the compilation kept no lines.
    """

    place: str
    instructions: int
    shared: dict[str, int]


@dataclass(frozen=True)
class Touched:
    """What the warps of one block ask of global memory by one instruction, each once: bytes, and sectors of 32.

    `distinct` bytes among all `asked` for, None where warps may differ in what is not known; `ideal_sectors`: as many
    as the distinct bytes of each warp fill. All are 0 where addresses are not known without executing, as of a gather.
    """

    warps: int = 0
    asked: int = 0
    distinct: int | None = None
    sectors: int = 0
    ideal_sectors: int = 0

    @property
    def known(self) -> bool:
        """Whether its addresses are."""
        return self.warps > 0

    @property
    def uncoalesced(self) -> bool:
        """Whether it touches a quarter more sectors than its bytes fill, as the emulated GPU's profile has it."""
        return self.sectors > 1.25 * self.ideal_sectors


@dataclass(frozen=True)
class GlobalAccess:
    """`count` accesses of a kernel to global memory that ask for as much, of the middle block at its first steps.

    `place`: the Python line, as that of `InnerLoop`.
    """

    instruction: str
    place: str
    in_loop: bool
    touched: Touched
    count: int = 1


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
    global_loads: int = 0  # instructions of the machine code that load global memory into registers
    loads_in_flight: int = 0  # the most of these that are issued before one is waited for
    bytes_in_flight: int = 0  # of a thread, by those
    global_accesses: tuple[GlobalAccess, ...] = ()
    inner_loops: tuple[InnerLoop, ...] = ()  # those that access shared memory
    code_bytes: int = 0
    launches: int = 1
    refused: tuple[str, ...] = ()  # what the hardware would refuse, one sentence each
    notes: tuple[str, ...] = ()  # what ptxas changed or spilled and where, registers by role
    undefined_registers: tuple[int, ...] = ()  # that the machine code reads though nothing has written them
    engines: EngineReport = field(default_factory=EngineReport)


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
    artifacts: dict[str, str] = field(default_factory=dict)  # "ptx", "cubin", "sass" -> path
    no_sass: str = ""  # why no machine code as text was kept though the others were


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

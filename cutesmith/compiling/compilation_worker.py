"""The child of `compilation`: runs one kernel file for one architecture and reports what was recorded."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import cutlass.cute  # noqa: F401  imported before the process is confined
import torch

from cutesmith.compiling.compile_errors import CompileError, describe_error
from cutesmith.compiling.inner_loops import inner_loops
from cutesmith.compiling.kernel_notes import kernel_notes
from cutesmith.compiling.narrowing import narrow_instructions, opcodes_in, unexplained
from cutesmith.compiling.requests import CompiledFile, CompileFile
from cutesmith.compiling.shares import COMPILED, NONE, Share
from cutesmith.compiling.types_seen import types_seen
from cutesmith.compiling.undefined_registers import FEWEST_REGISTERS
from cutesmith.compiling.unstable_joins import pointed_at_assignments
from cutesmith.devices import occupancy, parse_arch
from cutesmith.problems import contract
from cutesmith.problems.loading import load_file
from cutesmith.recording.cubin import CubinKernel, source_name
from cutesmith.recording.launch_limits import launch_shape, refusals
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import PtxKernel, read_ptx
from cutesmith.recording.sessions import Launch, Session
from cutesmith.sandbox.confinement import confine
from cutesmith.verdicts import ArchReport, EngineReport, ExitCode, GlobalAccess, KernelReport

if importlib.util.find_spec("tvm_ffi"):
    import tvm_ffi  # noqa: F401
HAS_NUMPY = importlib.util.find_spec("numpy") is not None
if HAS_NUMPY:  # imported before the process is confined
    from cutesmith.compiling.engines.global_accesses import global_accesses
    from cutesmith.compiling.engines.report import engine_report, program_of
    from cutesmith.emulator.errors import EmulationError

ENGINES = ("mbarrier.", "wgmma.", "tcgen05.mma", "setmaxnreg.", "cp.async.bulk.")
"""Instructions whose presence makes a kernel worth the look."""

MOST_SETS = 16  # input sets whose variants are built


class Compiler:
    """Answers `CompileFile`; the process is confined before the first file runs."""

    def __init__(self, *, confined: bool = True) -> None:
        self._unconfined = confined
        self._types: dict[tuple[str, ...], list[str]] = {}  # seen in references, by the texts: shares have the same

    def handle(self, request: CompileFile) -> CompiledFile:
        """Compile one file for one architecture."""
        for path, source in request.sources.items():
            contract.hold(path, source)
        if self._unconfined:
            confine()
            self._unconfined = False
        return _compile(request, self._types.setdefault(tuple(request.sources.values()), []))


def _compile(request: CompileFile, types: list[str]) -> CompiledFile:
    """Compile it; `types` are those that the reference computes with, which are filled in where they are needed."""
    path, problem, arch = Path(request.path), request.problem, request.arch
    started = time.perf_counter()
    fake, share = True, request.share
    sets = MOST_SETS if request.variants else 0
    recorded, error = _record(path, problem, arch, types, fake=fake, sets=sets, share=share)
    if error is not None and error.wants_values:
        fake = False
        recorded, error = _record(path, problem, arch, types, fake=fake, sets=sets, share=share)
    if error is None and share == NONE:
        return CompiledFile(
            ArchReport(arch=arch, exit_code=ExitCode.PASSED, compile_seconds=0.0), {}, calls=recorded.calls
        )
    report = _report(recorded, error, arch, time.perf_counter() - started, path.name)
    narrow = dict[str, int]()
    if error is None:  # what the kernel narrows though the problem's types do not ask for it
        counts = Counter(_opcodes(recorded))
        narrow = {opcode: counts[opcode] for opcode in unexplained(narrow_instructions(counts), types)}
    full = {kernel.name for kernel in report.kernels if kernel.registers >= FEWEST_REGISTERS}
    modules = [module for module in recorded.modules if request.keep or not full.isdisjoint(module.kernels)]
    return CompiledFile(report, narrow, tuple(m.ptx for m in modules), tuple(m.cubin for m in modules), recorded.calls)


def _record(
    path: Path,
    problem: str | None,
    arch: str,
    types: list[str],
    *,
    fake: bool,
    sets: int = 0,
    share: Share | None = None,
) -> tuple[Session, CompileError | None]:
    """Run the file's kernel on its inputs and so many input sets, tensors without storage when `fake`.

    `types` gets those that the reference computes with.
    """
    torch.manual_seed(0)
    modules, progress = set(sys.modules), Progress(sets)
    with session(arch, fake=fake, line_info=True, share=share) as recorded:
        if share is not None:
            recorded.on_compiled = lambda: print(COMPILED, end="", flush=True)
        try:
            _run_kernel(path, problem, types if fake and not types else None, recorded, progress)
            return recorded, None if share == NONE else _silent_error(recorded, progress)
        except (Exception, SystemExit) as error:
            said = describe_error(error, path, compiling=recorded.compiling)
            said = replace(said, message=f"{progress.where}{said.message}")
            return recorded, pointed_at_assignments(said, recorded.unstable, progress.source, path)
        finally:
            for name in set(sys.modules) - modules:
                if name.startswith("cutesmith_file_"):
                    del sys.modules[name]  # its compiled functions belong to this session


@dataclass
class Progress:
    """How many input sets are to be built, the file's text, and where it is when that is not at `get_inputs()`.

    `is_empty`: no result on `get_inputs()` has an element, so that nothing has to be launched.
    """

    sets: int
    source: str = ""
    where: str = ""
    is_empty: bool = False


def _run_kernel(
    path: Path, problem: str | None, types: list[str] | None, recorded: Session, progress: Progress
) -> None:
    """Run it, then every input set; `types` gets those that the reference computes with, where the kernel narrows."""
    progress.source = contract.problem_source(path)
    loaded = load_file(path, with_problem=problem is not None)
    source = load_file(problem) if problem else loaded
    inputs = contract.check_inputs(source.get_inputs())
    contract.check_arity(loaded.kernel_fn, "kernel_fn", inputs)
    result = loaded.kernel_fn(*inputs)
    results = result if isinstance(result, (tuple, list)) else [result]
    progress.is_empty = all(isinstance(each, torch.Tensor) and each.numel() == 0 for each in results)
    if progress.sets and source.get_input_sets is not None:
        _build_variants(loaded.kernel_fn, source.get_input_sets(), recorded, progress)
    progress.where = ""
    if types is not None and narrow_instructions(_opcodes(recorded)):
        with contextlib.suppress(Exception):  # it may want values
            types += types_seen(source.reference_fn, inputs)


def _build_variants(
    kernel_fn: Callable[..., object], sets: Iterable[Sequence[object]], recorded: Session, progress: Progress
) -> None:
    """Run `kernel_fn` on the input sets too; of what they launch, the first launch of each further kernel is kept."""
    known = {_code_of(launch) for launch in recorded.launches}
    for number, values in enumerate(itertools.islice(sets, progress.sets)):
        progress.where = f"get_input_sets()[{number}]: "
        before = len(recorded.launches)
        kernel_fn(*contract.check_inputs(values, where=f"get_input_sets()[{number}]"))
        further = [launch for launch in recorded.launches[before:] if _code_of(launch) not in known]
        recorded.launches[before:] = {_code_of(launch): launch for launch in reversed(further)}.values()
        known |= {_code_of(launch) for launch in further}


def _code_of(launch: Launch) -> tuple[str, bytes]:
    """What tells kernels apart: several compilations may give one name to theirs."""
    return launch.kernel, launch.module.cubin if launch.module else b""


def _opcodes(recorded: Session) -> list[str]:
    """Full opcodes of all that was launched."""
    modules = {id(launch.module): launch.module for launch in recorded.launches}
    return [opcode for module in modules.values() if module for opcode in opcodes_in(module.ptx)]


def _report(recorded: Session, error: CompileError | None, arch: str, seconds: float, source: str) -> ArchReport:
    seconds = sum(module.seconds for module in recorded.modules) or seconds
    if error is not None:
        return ArchReport(
            arch=arch,
            exit_code=error.exit_code,
            compile_seconds=round(seconds, 3),
            error_code=error.code,
            error=error.message,
            error_line=error.line,
        )
    kernels = kernel_reports(recorded, source)
    refused = [f"{source_name(kernel.name)}: {sentence}" for kernel in kernels for sentence in kernel.refused]
    return ArchReport(
        arch=arch,
        exit_code=ExitCode.DOES_NOT_COMPILE if refused else ExitCode.PASSED,
        compile_seconds=round(seconds, 3),
        kernels=kernels,
        error_code="LAUNCH_REFUSED" if refused else "",
        error="\n".join(refused),
    )


def _silent_error(recorded: Session, progress: Progress) -> CompileError | None:
    """What is wrong although nothing was raised: an unanswered call, or no launch at all."""
    if recorded.errors:
        message = "Recording the host code failed: " + "; ".join(recorded.errors)
        return CompileError(exit_code=ExitCode.INTERNAL, code="RECORDING", message=message, line=0)
    if recorded.launches:
        return None
    if progress.is_empty:
        message = "no result on get_inputs() has an element, so nothing was launched: give it inputs with elements"
        return CompileError(exit_code=ExitCode.UNAVAILABLE, code="NO_ELEMENTS", message=message, line=0)
    compiled = ", ".join(module.function for module in recorded.modules)
    message = (
        f"kernel_fn compiled {compiled} but launched no kernel" if compiled else "kernel_fn launched no CuTe kernel"
    )
    hint = "Call the compiled function in kernel_fn: compiled(x, y)."
    return CompileError(exit_code=ExitCode.DOES_NOT_COMPILE, code="NO_LAUNCH", message=f"{message}. {hint}", line=0)


def kernel_reports(session: Session, source: str = "") -> tuple[KernelReport, ...]:
    """One report for each distinct launch (kernel, grid, block, cluster, shared memory), in order of first launch.

    `source` is the file whose lines findings name.
    """
    counts = Counter(_identity(launch) for launch in session.launches)
    first = {_identity(launch): launch for launch in reversed(session.launches)}
    return tuple(_kernel_report(session, first[identity], count, source) for identity, count in counts.items())


def _identity(launch: Launch) -> tuple[object, ...]:
    return (*_code_of(launch), launch.grid, launch.block, launch.cluster, launch.dynamic_smem)


def _kernel_report(session: Session, launch: Launch, count: int, source: str) -> KernelReport:
    kernel, module = launch.compiled, launch.module
    if kernel is None:
        raise KeyError(f"kernel {launch.kernel} was launched, but no cubin holds it")
    entries = read_ptx(module.ptx) if module else {}
    ptx = entries.get(launch.kernel, PtxKernel(name=launch.kernel, widest_load_bits=0, widest_store_bits=0))
    spills = module.spills.get(launch.kernel) if module else None
    sm = parse_arch(session.arch).sm
    smem = kernel.static_smem_bytes + launch.dynamic_smem
    fits = occupancy(sm, threads=prod(launch.block), registers=kernel.registers, smem=smem)
    engines, accesses = EngineReport(), tuple[GlobalAccess, ...]()
    if module:
        engines, accesses = _without_execution(launch, kernel, module.ptx, source)
    return KernelReport(
        name=launch.kernel,
        arch=session.arch,
        registers=kernel.registers,
        stack_bytes=kernel.stack_bytes,
        spill_store_bytes=spills.store_bytes if spills else None,
        spill_load_bytes=spills.load_bytes if spills else None,
        static_smem_bytes=kernel.static_smem_bytes,
        dynamic_smem_bytes=launch.dynamic_smem,
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster,
        occupancy_blocks=fits.blocks,
        occupancy_percent=fits.percent,
        occupancy_limit=fits.limit,
        widest_global_load_bits=ptx.widest_load_bits,
        widest_global_store_bits=ptx.widest_store_bits,
        tensor_core_instructions=ptx.tensor_core,
        tma_instructions=ptx.tma,
        global_loads=kernel.global_loads.count,
        loads_in_flight=kernel.global_loads.in_flight,
        bytes_in_flight=kernel.global_loads.bytes_in_flight,
        inner_loops=inner_loops(module.ptx, launch.kernel) if module else (),
        code_bytes=kernel.code_bytes,
        launches=count,
        refused=refusals(launch_shape(launch, kernel), sm),
        notes=kernel_notes(launch, kernel, module, ptx) if module else (),
        global_accesses=accesses,
        engines=engines,
    )


def _without_execution(
    launch: Launch, kernel: CubinKernel, ptx: str, source: str
) -> tuple[EngineReport, tuple[GlobalAccess, ...]]:
    """What follows of engines and of accesses to global memory from the PTX; it needs NumPy, which scripts of the
    skill can do without.
    """
    engines = any(word in ptx for word in ENGINES)
    if not HAS_NUMPY:
        return EngineReport(undecided=("what it asks of engines and global memory: NumPy is not installed",)), ()
    try:
        program = program_of(launch, ptx)
    except EmulationError as error:
        return EngineReport(undecided=(f"what it asks of engines and global memory: {error}",)), ()
    report = engine_report(launch, kernel, program, source) if engines else EngineReport()
    return report, global_accesses(program, launch, source)

"""Why a kernel is as fast as it is: under Nsight Compute where there is a GPU, else on the emulated one."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from cutesmith.devices import DEFAULT_ARCH, current_device, parse_arch
from cutesmith.errors import CandidateError, CutesmithError, UnavailableError, UsageError, told_of
from cutesmith.judge.cheats import find_cheats
from cutesmith.judge.problem_process import reference_call, reference_process, untrusted
from cutesmith.judge.reference_side.requests import Draw, Drawn, Load
from cutesmith.judge.rounds import START_SECONDS, exchange, loading, new_seed
from cutesmith.judge.transfer.requests import Start, TensorFile
from cutesmith.problems import contract
from cutesmith.profiling.advice import ProfileAdvice, advise, busiest, static_advice
from cutesmith.profiling.emulation import emulate_kernel
from cutesmith.profiling.ncu_metrics import ProfiledKernel, profiled_kernel
from cutesmith.profiling.ncu_run import INSTALL, MOST_LAUNCHES, Collected, NcuRequest, collect, find_ncu
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits
from cutesmith.verdicts import EmulateVerdict, ExitCode, Verdict

NO_GPU = "this machine has no NVIDIA GPU"
NO_NCU = "ncu (Nsight Compute) is not installed"
WITHOUT_RUNNING = (
    "Without running it, `cutesmith compile {path}{arch}` tells registers, spills, shared memory, occupancy and the "
    "widest accesses; on a GPU with ncu, profile measures the rest."
)


@dataclass(frozen=True, kw_only=True)
class ProfileVerdict(Verdict):
    """Where a kernel's time goes, and what to change, the largest stake first.

    `tool` is "ncu" (`kernels`: what was measured, a launch each) or "emulator" (`emulated`: counts by line, no times).
    `note` says why it is not ncu, or what is missing; `tensor_bytes` are those of inputs and outputs.
    """

    stage: ClassVar[str] = "profile"

    path: str
    tool: str = ""
    device: str = ""
    arch: str = ""
    inputs: str = ""
    tensor_bytes: int = 0
    kernels: tuple[ProfiledKernel, ...] = ()
    advice: tuple[ProfileAdvice, ...] = ()
    emulated: EmulateVerdict | None = None
    report: str = ""  # ncu's own report, where it was kept
    note: str = ""
    hint: str = ""
    rule: str = ""
    confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""

    @property
    def status(self) -> str:
        """`profiled` rather than `passed`: nothing was compared with the reference, and no time is a benchmark's."""
        return "profiled" if self.passed else super().status


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """Where and how: architecture, ncu's path, where to keep its report, all inputs on the emulated GPU, seconds.

    `confine_problem`: that of a file of its own too.
    """

    arch: str | None = None
    ncu: str | None = None
    report: str | None = None
    full: bool = False
    timeout: float = 300.0
    confine_problem: bool = False


def profile_kernel(
    path: str | Path, *, problem: str | Path | None = None, on: str = "auto", options: ProfileOptions | None = None
) -> ProfileVerdict:
    """Profile one call of `kernel_fn` on `get_inputs()`: on "gpu" (ncu), "emulator", or "auto", the best that is there.

    What the kernel does wrong ends in the verdict. Raises ContractError for a file that is not a kernel file,
    UsageError for an unknown architecture or an ncu that does not exist.
    """
    begin = time.monotonic()
    options, path = options or ProfileOptions(), Path(path)
    contract.inspect_kernel(path, with_problem=problem is not None)
    if problem is not None:
        contract.inspect(problem)
    if options.arch is not None:
        parse_arch(options.arch)
    report = options.report  # looked at before the run, which takes minutes
    if report is not None and (Path(report).is_dir() or not os.access(Path(report).absolute().parent, os.W_OK)):
        raise UsageError(f"--report {report}: no file can be written there", hint="Name a file in a folder of yours.")
    program = find_ncu(options.ncu)
    profiling = Profiling(path, contract.problem_of(path, problem), options, program)
    return replace(profiling.verdict(on), seconds=round(time.monotonic() - begin, 3))


@dataclass(frozen=True)
class Profiling:
    """One profile of one file."""

    path: Path
    problem: Path
    options: ProfileOptions
    ncu: str | None

    def verdict(self, on: str) -> ProfileVerdict:
        """Everything from the static checks to the advice; on "cpu" this package tries itself."""
        findings = [] if on == "cpu" else find_cheats(contract.problem_source(self.path), self.path)
        for finding in findings:
            return self._ended(ExitCode.REJECTED, finding.text, rule=str(finding.rule or ""))
        if on == "emulator":
            return self._static()
        try:
            return self._measured("cpu" if on == "cpu" else "cuda")
        except (CandidateError, UnavailableError) as error:
            if on == "auto" and error.exit_code == ExitCode.UNAVAILABLE:
                return self._static(error)
            return self._failed(error)
        except CutesmithError as error:
            return self._failed(error)

    def _measured(self, device: str) -> ProfileVerdict:
        """Under ncu; raises UnavailableError where that cannot be."""
        name, arch = self._machine(device)
        if self.ncu is None:
            raise UnavailableError(NO_NCU, hint=INSTALL)
        with exchange() as folder:
            with gpu_lock(device, exclusive=False):
                drawn = self._draw(folder, device, arch)
            request = NcuRequest(
                ncu=self.ncu,
                path=self.path,
                folder=folder,
                inputs=drawn.inputs,
                arch=arch,
                device=device,
                timeout=self.options.timeout,
                line_info=self.options.report is not None,
            )
            with gpu_lock(device, exclusive=True):
                collected = collect(request)
            return self._told(collected, drawn, name, arch, report=self._kept(request.report))

    def _machine(self, device: str) -> tuple[str, str]:
        """The device's name and the architecture to compile for."""
        if device == "cpu":
            return "cpu", self.options.arch or DEFAULT_ARCH
        found = current_device()
        if found is None:
            raise UnavailableError(NO_GPU)
        return found.name, found.fitting_arch(self.options.arch)

    def _draw(self, folder: Path, device: str, arch: str) -> Drawn:
        """Inputs from a secret seed, drawn where no candidate runs; an untrusted problem is confined."""
        memory = fair_memory(96 * GIB)
        limits = Limits(call_seconds=self.options.timeout, memory_bytes=memory, file_bytes=32 * GIB, processes=512)
        reference = reference_process(
            why=untrusted(self.path, self.problem, asked=self.options.confine_problem),
            limits=limits,
            scratch=folder / "reference",
            gpu=device == "cuda",
            environment={"CUTE_DSL_ARCH": arch},
        )
        load = Load(device, str(self.problem.resolve()), new_seed(), arch)
        with reference as worker:
            reference_call(worker, Start(device, arch), timeout=START_SECONDS)
            with loading(self.problem.name):
                reference_call(worker, load, timeout=self.options.timeout)
            return reference_call(worker, Draw(key="profile", seed=new_seed(), folder=str(folder / "inputs")))

    def _kept(self, report: Path) -> str:
        """Where ncu's report is kept, "" when none was asked for. Raises UsageError when it cannot be written."""
        if self.options.report is None:
            return ""
        try:
            shutil.copyfile(report, self.options.report)
        except OSError as error:
            raise UsageError(f"--report {self.options.report} cannot be written: {error.strerror}") from error
        return self.options.report

    def _told(self, collected: Collected, drawn: Drawn, device: str, arch: str, *, report: str) -> ProfileVerdict:
        kernels = tuple(profiled_kernel(launch) for launch in collected.launches)
        files = [
            Path(value.file) for value in drawn.inputs if isinstance(value, TensorFile)
        ]  # as the kernel reads them
        tensor_bytes = sum(file.stat().st_size for file in files if file.exists()) + collected.output_bytes
        return ProfileVerdict(
            exit_code=ExitCode.PASSED,
            summary=f"{self.path.name}: {_summary(kernels)}",
            path=str(self.path),
            tool="ncu",
            device=device,
            arch=arch,
            inputs=drawn.summary,
            tensor_bytes=tensor_bytes,
            kernels=kernels,
            advice=_advice(kernels, tensor_bytes),
            report=report,
            note=_cut_note(collected),
            confinement=collected.confinement,
            log_tail=collected.log_tail,
        )

    def _static(self, why: CandidateError | UnavailableError | None = None) -> ProfileVerdict:
        """Counts on the emulated GPU; `why` it is not ncu."""
        problem = None if self.problem == self.path else self.problem
        arch, full, timeout = self.options.arch, self.options.full, self.options.timeout
        emulated = emulate_kernel(self.path, problem=problem, arch=arch, full=full, profile=True, timeout=timeout)
        return self._counted(emulated, why)

    def _counted(self, emulated: EmulateVerdict, why: CandidateError | UnavailableError | None) -> ProfileVerdict:
        count = len(emulated.launches)
        counted = f"{count} launch{'es' if count > 1 else ''} counted on the emulated GPU, nothing was timed"
        how = "counted on the emulated GPU, no times" if emulated.passed else "tried on the emulated GPU"
        note = "" if why is None else f"{why.message}: {how}"
        note += "; no report was written" if note and self.options.report else ""
        hint = emulated.hint
        if emulated.exit_code == ExitCode.UNAVAILABLE:
            arch = f" --arch {self.options.arch}" if self.options.arch else ""
            hint = f"{hint}\n{WITHOUT_RUNNING.format(path=self.path, arch=arch)}".strip()
        elif why is not None:
            hint = hint or why.hint
        return ProfileVerdict(
            exit_code=emulated.exit_code,
            summary=f"{self.path.name}: {counted}" if emulated.passed else emulated.summary,
            path=str(self.path),
            tool="emulator",
            device=f"the emulated GPU ({emulated.arch})",
            arch=emulated.arch,
            inputs=emulated.inputs,
            tensor_bytes=emulated.tensor_bytes,
            advice=static_advice(emulated),
            emulated=emulated,
            note=note,
            hint=hint,
            confinement=emulated.confinement,
            log_tail=emulated.log_tail or (why.log_tail if isinstance(why, CandidateError) else ""),
        )

    def _failed(self, error: CutesmithError) -> ProfileVerdict:
        text = told_of(self.path.name, error.message)
        tail = error.log_tail if isinstance(error, CandidateError) else ""
        return self._ended(error.exit_code, text, hint=error.hint, log_tail=tail[-20000:])

    def _ended(self, code: ExitCode, summary: str, **fields: Any) -> ProfileVerdict:
        return ProfileVerdict(exit_code=code, summary=summary, path=str(self.path), **fields)


def _advice(kernels: tuple[ProfiledKernel, ...], tensor_bytes: int) -> tuple[ProfileAdvice, ...]:
    """The remarks of all launches, those of the longest launch first."""
    only = float(tensor_bytes) if len(kernels) == 1 else None
    order = sorted(range(len(kernels)), key=lambda index: -(kernels[index].duration_us or 0.0))
    names = [kernel.name if len(kernels) == 1 else f"launch {i}, {kernel.name}" for i, kernel in enumerate(kernels)]
    return tuple(
        replace(remark, kernel=names[index]) for index in order for remark in advise(kernels[index], tensor_bytes=only)
    )


def _summary(kernels: tuple[ProfiledKernel, ...]) -> str:
    """Such as "1 launch under ncu, 252.0 us; DRAM 91 % of its peak"."""
    count = f"{len(kernels)} launch{'es' if len(kernels) > 1 else ''} under ncu"
    times = [kernel.duration_us for kernel in kernels if kernel.duration_us is not None]
    unit, percent = busiest(max(kernels, key=lambda kernel: kernel.duration_us or 0.0))
    busy = f"; {unit} {percent:.0f} % of its peak" if unit else ""
    return f"{count}, {sum(times):.1f} us{busy}" if times else f"{count}{busy}"


def _cut_note(collected: Collected) -> str:
    count = len(collected.launches)
    if collected.cut:
        return f"ncu's table was cut after {count} launch{'es' if count > 1 else ''}: what followed is missing"
    return f"only the first {MOST_LAUNCHES} launches were profiled" if count >= MOST_LAUNCHES else ""

"""One kernel file under Nsight Compute: find ncu, run it on a process of its own, and say why when nothing came of it.

Kernel replay: ncu runs each launch as often as its counters need (dozens of times), memory restored in between, in one
process with one compilation; application replay would start, compile and draw again for every pass. Caches are flushed
before each pass, as the benchmark does; clocks are left as they are, since locking them changes the GPU for all who
use it: durations are near those of the benchmark, yet of single launches, hence no verdict on speed.

The report and ncu's own messages go to files beside the candidate's folder, where the confined candidate cannot write;
what the candidate prints is only a log. ncu's home is there too, since ncu runs the rules that it finds at home; and
the report is read from a folder that is not the candidate's, since ncu takes settings from the current one.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cutesmith.errors import CandidateError, UsageError
from cutesmith.judge.transfer.requests import Value
from cutesmith.profiling.ncu_metrics import SECTIONS
from cutesmith.profiling.ncu_reader import RawLaunch, complaints, read_raw_page
from cutesmith.profiling.requests import ProfileFile, Progress
from cutesmith.sandbox.messages import decode, encode
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.watched_program import Finished, run_watched
from cutesmith.sandbox.worker import GIB, Limits
from cutesmith.unicode import encodable
from cutesmith.verdicts import ExitCode

LOCATIONS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/opt/cuda/nsight_compute/ncu")
INSTALL = "Install Nsight Compute (part of the CUDA toolkit) and put `ncu` on PATH, or give --ncu PATH."
PERMISSION = "ERR_NVGPUCTRPERM"
PERMISSION_HINT = (
    "The driver reserves performance counters for administrators; the machine's owner can allow them: "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
FEWER_PASSES = "ncu runs every launch dozens of times: return fewer elements from get_inputs(), or raise --timeout."
MOST_LAUNCHES = 32
STATUS = "status.jsonl"  # in the candidate's folder: what ncu_worker tells
TRUSTED_KERNEL = "spin_kernel"  # that of torch.cuda._sleep, which the worker profiles first
_STATUS_BYTES, _LOG_BYTES = 1 << 20, 4 << 20
_OF_A_CANDIDATE = (ExitCode.USAGE, ExitCode.DOES_NOT_COMPILE, ExitCode.CRASHED)
_OURS = (ExitCode.UNAVAILABLE, ExitCode.INTERNAL)
_IMPORT_BYTES, _IMPORT_SECONDS = 256 << 20, 120.0


@dataclass(frozen=True, kw_only=True)
class NcuRequest:
    """What to profile: a kernel file, inputs as files, on "cuda" ("cpu": this package tries itself), seconds in all.

    `folder` holds the exchange: its `candidate` is the scratch folder of the profiled process.
    """

    ncu: str
    path: Path
    folder: Path
    inputs: Sequence[Value]
    arch: str
    device: str = "cuda"
    timeout: float = 300.0
    line_info: bool = False

    @property
    def report(self) -> Path:
        """Where ncu writes its report."""
        return self.folder / "profile.ncu-rep"

    @property
    def scratch(self) -> Path:
        """The candidate's folder."""
        return self.folder / "candidate"

    @property
    def home(self) -> Path:
        """ncu's home, which is not the candidate's."""
        return self.folder / "home"


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What ncu measured: launches of the candidate, whether its table was cut, and what the profiled process told."""

    launches: tuple[RawLaunch, ...]
    cut: bool = False
    output_bytes: int = 0
    confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""


def find_ncu(program: str | None = None) -> str | None:
    """The path of ncu, None where it is not installed; UsageError for a given one that cannot be run."""
    if program is not None:
        found = shutil.which(program)
        if found is None:
            raise UsageError(f"--ncu {program}: no such program", hint=INSTALL)
        return os.path.abspath(found)
    installed = [path for pattern in LOCATIONS for path in sorted(glob.glob(pattern), reverse=True)]
    return shutil.which("ncu") or next((path for path in installed if os.access(path, os.X_OK)), None)


def ncu_command(request: NcuRequest, log: Path, request_file: Path) -> list[str]:
    """The command line: fixed sections, only what runs between cudaProfilerStart and -Stop."""
    options = {
        "--export": str(request.report),
        "--log-file": str(log),
        "--profile-from-start": "off",
        "--target-processes": "application-only",
        "--replay-mode": "kernel",
        "--cache-control": "all",
        "--clock-control": "none",
        "--apply-rules": "no",  # Python files; the advice here comes from the numbers
        "--launch-count": str(MOST_LAUNCHES + 1),  # the trusted one comes first
    }
    sections = [word for section in SECTIONS for word in ("--section", section)]
    worker = [sys.executable, "-m", "cutesmith.profiling.ncu_worker", str(request_file)]
    return [request.ncu, "--force-overwrite", *(word for pair in options.items() for word in pair), *sections, *worker]


def collect(request: NcuRequest) -> Collected:
    """Profile, then read the report.

    Raises CandidateError: UNAVAILABLE when ncu cannot profile on this machine, TIMED_OUT, CRASHED or the candidate's
    own exit code when the kernel fails, USAGE when it launches nothing.
    """
    log, request_file = request.folder / "ncu.log", request.folder / "request.json"
    limits = Limits(call_seconds=request.timeout, memory_bytes=fair_memory(48 * GIB), file_bytes=32 * GIB)
    for folder in (request.scratch, request.home):
        folder.mkdir(parents=True, exist_ok=True)
    profiled = ProfileFile(
        path=request.path.resolve(),
        device=request.device,
        inputs=tuple(request.inputs),
        file_bytes=limits.file_bytes,
        cpu_seconds=int(os.cpu_count() or 1) * int(request.timeout + 60),  # compilers use several threads
    )
    request_file.write_text(json.dumps(encode(profiled, ProfileFile)), encoding="utf-8")
    environment = {"CUTE_DSL_ARCH": request.arch}
    if request.line_info:
        environment["CUTE_DSL_LINEINFO"] = "1"
    command = ncu_command(request, log, request_file)
    finished = _run(command, request, limits, request.scratch, environment)
    run = _Ended(request, finished, _read(log, _LOG_BYTES), _progress(request.scratch / STATUS))
    run.raise_failure()
    return run.collected(_import(request, limits, run))


def _run(
    command: list[str], request: NcuRequest, limits: Limits, cwd: Path, extra: Mapping[str, str] | None = None
) -> Finished:
    environment = {"HOME": str(request.home), "LC_ALL": "C", **(extra or {})}
    try:
        return run_watched(command, cwd=cwd, limits=limits, environment=environment)
    except OSError as error:
        text = f"{request.ncu} cannot be started: {error}"
        raise CandidateError(text, ExitCode.UNAVAILABLE, hint=INSTALL) from error


def _import(request: NcuRequest, limits: Limits, run: _Ended) -> Finished:
    """Print the report as a table, in a process in which no candidate ever ran."""
    if not request.report.is_file():
        raise run.unavailable("ncu wrote no report")
    command = [request.ncu, "--import", str(request.report), "--csv", "--page", "raw", "--print-units", "base"]
    bounded = replace(limits, call_seconds=_IMPORT_SECONDS, log_bytes=_IMPORT_BYTES)
    finished = _run(command, request, bounded, request.folder)
    if finished.stopped or finished.code:
        said = _joined(complaints(finished.output)) or finished.stopped or f"exit code {finished.code}"
        raise run.unavailable(f"ncu cannot read its own report: {said}", tail=finished.output)
    return finished


@dataclass(frozen=True)
class _Ended:
    """A run of ncu that is over: what it said itself, and what the profiled process told."""

    request: NcuRequest
    finished: Finished
    log: str
    progress: Progress

    @property
    def tail(self) -> str:
        """What the candidate printed, then what ncu said."""
        return f"{self.finished.output}\n{self.log}".strip()[-20000:]

    @property
    def _errors(self) -> list[str]:
        """What ncu complained of; from its standard output only if no candidate was there to write on it."""
        return complaints(self.log if self.log or self._loaded else self.finished.output)

    @property
    def _loaded(self) -> bool:
        """Whether the candidate was there: what goes wrong may then be its fault."""
        return self.progress.confinement is not None

    def raise_failure(self) -> None:
        """Raise what went wrong, if anything did: first what says most."""
        if any(PERMISSION in error for error in self._errors):
            raise self.unavailable(f"ncu may not read this GPU's performance counters ({PERMISSION})", PERMISSION_HINT)
        stage, error = self.progress.stage, self.progress.error
        if self.finished.stopped:
            who, where = "the kernel under ncu" if self._loaded else "ncu", f" (in {stage})" if stage else ""
            code = ExitCode.TIMED_OUT if self.finished.timed_out else ExitCode.CRASHED
            message = f"{who} {self.finished.stopped}{where}"
            raise CandidateError(message, code, hint=FEWER_PASSES, log_tail=self.tail)
        if error is not None:
            # An exit code that a candidate may not give itself counts as a crash.
            known = _OF_A_CANDIDATE if self._loaded else (*_OF_A_CANDIDATE, *_OURS)
            code = next((code for code in known if code == error.exit_code), ExitCode.CRASHED)
            message = error.message if error.ours else f"{error.kind}: {error.message}"
            tail = f"{self.tail}\n{error.traceback}".strip()[-20000:]
            raise CandidateError(message[:4000], code, hint=error.hint, log_tail=tail)
        if self.progress.output_bytes is None:
            said = _joined(self._errors) or f"ncu left with exit code {self.finished.code}"
            if not self._loaded:
                raise self.unavailable(f"ncu could not start the profiled process: {said}")
            message = f"the kernel ended its process in {stage or 'its end'}: {said}"
            raise CandidateError(message, ExitCode.CRASHED, log_tail=self.tail)

    def collected(self, imported: Finished) -> Collected:
        """The launches of the candidate in the imported table."""
        page = read_raw_page(imported.output)
        trusted = bool(page.launches) and TRUSTED_KERNEL in page.launches[0].symbol.partition("(")[0].split("::")
        own = page.launches[1:] if trusted else page.launches
        if page.cut and not own:
            raise self.unavailable("ncu's table ends before its first launch is whole", tail=imported.output)
        if not own and (said := _joined(self._errors)):
            raise self.unavailable(f"ncu profiled no launch of the kernel: {said}")
        if not page.launches and self.request.device == "cuda":
            raise self.unavailable("ncu profiled nothing, not even a trusted kernel")
        if not own:
            hint = "Call the compiled function in kernel_fn; torch operations alone do not make a kernel."
            raise CandidateError("kernel_fn launched no kernel", ExitCode.USAGE, hint=hint, log_tail=self.tail)
        return Collected(
            launches=own,
            cut=page.cut,
            output_bytes=self.progress.output_bytes or 0,
            confinement=self.progress.confinement or {},
            log_tail=self.tail,
        )

    def unavailable(self, message: str, hint: str = "", *, tail: str = "") -> CandidateError:
        """An error that is the machine's."""
        told = f"{self.tail}\n{tail}".strip()
        return CandidateError(message, ExitCode.UNAVAILABLE, hint=hint, log_tail=told)


def _joined(errors: Sequence[str]) -> str:
    """Several complaints in a line: the first is often only that there is one."""
    return " ".join(errors)[:600]


def _read(path: Path, most: int) -> str:
    """The first bytes of a file, "" where it is not a regular file: a candidate may have put anything in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        return file.read(most).decode(errors="replace") if stat.S_ISREG(os.fstat(descriptor).st_mode) else ""


def _progress(path: Path) -> Progress:
    """What the profiled process told last; lines that do not fit, such as one that was cut off, are passed over."""
    progress = Progress()
    for line in _read(path, _STATUS_BYTES).splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            progress = decode(encodable(json.loads(line)), Progress)
    return progress

"""The stages of one attempt, each a function from a job to its result, for the process that runs them.

Jobs hold the files themselves, so that a worker needs nothing but this package. Nothing that a kernel does raises.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from cutesmith.errors import CandidateError, CutesmithError
from cutesmith.evals.engines import jobs
from cutesmith.evals.engines.jobs import BENCHMARK, DRAFT, REDUCE, SESSION, VERIFY, File, Job, StageResult
from cutesmith.evals.settings import JudgeSettings
from cutesmith.evals.stage_verdicts import GenerationVerdict, StageVerdict
from cutesmith.sandbox.failures import mechanism_of
from cutesmith.sandbox.gpu_lock import recorded_holds
from cutesmith.sandbox.scratch import FILES, scratch_folder
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.unicode import encodable
from cutesmith.verdicts import ExitCode, Verdict

KERNEL = "kernel.py"
TAIL = 4000
FOLDER = "cutesmith-eval-"
LIBRARIES = "libraries"
SUSPICIOUS = (ExitCode.USAGE, ExitCode.CRASHED, ExitCode.TIMED_OUT, ExitCode.UNAVAILABLE)
"""What a vanished or broken GPU looks like from inside a verdict; then the GPU itself is asked."""


def run_stage(job: Job) -> StageResult:
    """The result of one stage."""
    with recorded_holds() as holds:
        result = without_our_folders(STAGE_FUNCTIONS[type(job)](job))
    gpu = f"{socket.gethostname()}:{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}"
    return result.model_copy(update={"gpu": gpu, "holds": tuple(holds)})


def without_our_folders(result: StageResult) -> StageResult:
    """Files by their names alone: the folders of this process mean nothing elsewhere, and are new each time."""
    folder = re.escape(os.path.join(tempfile.gettempdir(), FOLDER))
    text = result.model_dump_json(exclude_unset=True)
    return StageResult.model_validate_json(re.sub(f"{folder}[^/]+/{FILES}/((task|{LIBRARIES})/)?", "", text))


@contextmanager
def _files(job: Job, kernel: File | None = None) -> Iterator[tuple[Path, Path]]:
    """The task and the kernel (where there is one) as files of a folder that goes away; the judge only reads them."""
    with scratch_folder(prefix=FOLDER) as folder:
        task = folder / "task" / Path(job.task.name).name
        task.parent.mkdir()
        task.write_bytes(job.task.data)
        if kernel is not None:
            (folder / KERNEL).write_bytes(kernel.data)
        yield task, folder / KERNEL


def _reduce(job: jobs.ReduceJob) -> StageResult:
    """The task's file at the smallest sizes that the audit accepts."""
    from cutesmith.evals.suites.reduced import reduced_text

    with _files(job) as (task, _):
        try:
            text = reduced_text(task)
        except CutesmithError as error:
            return StageResult(verdicts={REDUCE: failure(REDUCE, error.exit_code, str(error))})
    return StageResult(problem=File(name=job.task.name, data=text.encode()))


def _check(job: jobs.CheckJob) -> StageResult:
    """Lint, which is advice, and compilation for the target, which decides."""
    from cutesmith.compiling.compilation import compile_kernel
    from cutesmith.lint import lint_file

    archs, timeout = (job.settings.arch,), job.settings.timeout
    with _files(job, job.kernel) as (task, kernel):
        verdicts = {"lint": said("lint", lambda: lint_file(kernel))}
        if verdicts["lint"].exit_code != ExitCode.USAGE:  # else it is not a Python file at all
            verdicts["compile"] = said("compile", lambda: compile_kernel(kernel, archs, problem=task, timeout=timeout))
    return StageResult(verdicts=verdicts)


def _verify(job: jobs.VerifyJob) -> StageResult:
    from cutesmith.judge.rounds import VerifyOptions
    from cutesmith.judge.verification import verify_kernel
    from cutesmith.timing.entries import import_for_gpu

    settings = job.settings
    options = VerifyOptions(arch=settings.arch, rtol=settings.rtol, atol=settings.atol, seeds=settings.seeds)
    options = replace(options, timeout=settings.timeout, preload=import_for_gpu, processes=1)
    with _files(job, job.kernel) as (task, kernel):
        verdict = said(VERIFY, lambda: verify_kernel(kernel, options, problem=task, on=settings.on))
    return _with_gpu_state(StageResult(verdicts={VERIFY: verdict}), verdict, settings)


def _benchmark(job: jobs.BenchmarkJob) -> StageResult:
    from cutesmith.judge.reference_side.requests import Tolerances
    from cutesmith.timing.benchmark import BenchmarkOptions, benchmark_kernel

    settings = job.settings
    with _files(job, job.kernel) as (task, kernel):
        options = BenchmarkOptions(
            baselines=tuple(written_libraries(job.libraries, kernel.parent / LIBRARIES)),
            compiled=settings.compile_baseline,
            rounds=settings.rounds,
            timeout=settings.benchmark_timeout,
            arch=settings.arch,
            tolerances=Tolerances(rtol=settings.rtol, atol=settings.atol),
        )
        verdict = said(BENCHMARK, lambda: benchmark_kernel(kernel, options, problem=task))
    return _with_gpu_state(StageResult(verdicts={BENCHMARK: verdict}), verdict, settings)


def written_libraries(libraries: Sequence[jobs.LibraryFile], folder: Path) -> list[str]:
    """The library baselines, written into a folder of their own, as the benchmark names them: file and function."""
    folder.mkdir()
    for library in libraries:
        (folder / Path(library.name).name).write_bytes(library.data)
    return [f"{folder / Path(library.name).name}:{library.function}" for library in libraries]


def _draft(job: jobs.DraftJob) -> StageResult:
    """The offline generator's kernel: its verdict, and the file if there is one.

    A single configuration needs no race, and it is verified by the judge in any case: the generator only compiles it.
    """
    from cutesmith.patterns.generation.generate import generate_kernel

    settings, maker = job.settings, job.maker
    on = "compile" if maker.configurations == 1 else settings.on
    generate = partial(generate_kernel, arch=settings.arch, on=on, benchmark=False, use_cache=maker.race_cache)
    with _files(job) as (task, kernel):
        out = kernel.parent / "out"
        verdict = said(DRAFT, lambda: generate(task, out=out, configurations_limit=maker.configurations))
        return _with_gpu_state(_generated(verdict, out / KERNEL), verdict, settings)


def _session(job: jobs.SessionJob) -> StageResult:
    """A session with a model, in a folder of the run; goes on with the one that is there."""
    from cutesmith.agent.transcript import FILE
    from cutesmith.verb_process import run_verb

    folder, options = Path(job.folder), [f"--agent={job.agent}", "--yes", "--quiet", *job.options]
    with _files(job) as (task, _):
        if (folder / FILE).is_file() and b'"kind": "session"' in (folder / FILE).read_bytes():
            options += [f"--resume={folder}"]
        else:
            shutil.rmtree(folder, ignore_errors=True)  # what a process left that was killed before it began
            options += [f"--out={folder}", f"--on={job.settings.on}", f"--arch={job.settings.arch}", "--", str(task)]
        try:
            verb = run_verb("generate", *options, keys=True, lender=lend_fork_server)
            verdict = StageVerdict.model_validate(encodable(asyncio.run(verb)))
        except CutesmithError as error:
            verdict = failure(SESSION, error.exit_code, str(error))
    return _generated(verdict, folder / KERNEL)


def _generated(verdict: StageVerdict, kernel: Path) -> StageResult:
    """The result of making a kernel: the verdict on it, and the file if there is one."""
    generation = GenerationVerdict.model_validate(verdict.plain())
    there = generation.kernel and kernel.is_file()
    return StageResult(generation=generation, kernel=File(name=KERNEL, data=kernel.read_bytes()) if there else None)


def said(stage: str, judge: Callable[[], Verdict]) -> StageVerdict:
    """A stage's verdict; what the judge raises is one too."""
    try:
        return StageVerdict.model_validate(encodable(judge().to_dict()))
    except CutesmithError as error:
        rule, tail = (error.rule, error.log_tail) if isinstance(error, CandidateError) else (None, "")
        more = {"rule": str(rule or ""), "log_tail": tail[-TAIL:], "mechanism": mechanism_of(error).value}
        return failure(stage, error.exit_code, str(error), **more)
    except Exception as error:  # a bug of ours: it must not end the run, and it says nothing of the kernel
        tail = "".join(traceback.format_exception(error))[-TAIL:]
        return failure(stage, ExitCode.INTERNAL, f"{type(error).__name__}: {error}", log_tail=tail)


def failure(stage: str, code: ExitCode, summary: str, **more: str) -> StageVerdict:
    """The verdict of a stage that gave none of its own; `more` are further fields of it."""
    fields = {"stage": stage, "status": code.name.lower(), "exit_code": code, "summary": summary}
    return StageVerdict.model_validate(encodable({**fields, "rule": "", "log_tail": "", **more}))


def _with_gpu_state(result: StageResult, verdict: StageVerdict, settings: JudgeSettings) -> StageResult:
    """If the verdict hints it: with why this GPU can judge nothing now, and what others hold of its memory."""
    if settings.on != "gpu" or verdict.exit_code not in SUSPICIOUS:
        return result
    from cutesmith.evals.engines.gpus import probe

    found = probe()
    return result.model_copy(update={"gpu_lost": found.lost, "gpu_taken": found.taken})


STAGE_FUNCTIONS: dict[type[Job], Callable[..., StageResult]] = {
    jobs.ReduceJob: _reduce,
    jobs.DraftJob: _draft,
    jobs.SessionJob: _session,
    jobs.CheckJob: _check,
    jobs.VerifyJob: _verify,
    jobs.BenchmarkJob: _benchmark,
}

"""The stages of one attempt as functions from plain data to plain data, for the process that runs them.

Payloads hold the files themselves (base64), so that a worker needs nothing but this package: `task` and `kernel` are
{"name", "data"}, `settings` a JudgeSettings. Results: `verdicts` by stage, `holds` of the GPU, `gpu_lost` when the
device and not the kernel is to blame, `gpu_taken` when others hold its memory. Nothing that a kernel does raises.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cutesmith.errors import CandidateError, CutesmithError
from cutesmith.evals.engines.jobs import BENCHMARK, CHECK, DRAFT, SESSION, VERIFY
from cutesmith.evals.settings import JudgeSettings
from cutesmith.sandbox.gpu_lock import recorded_holds
from cutesmith.sandbox.scratch import FILES, scratch_folder
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.verdicts import ExitCode, Verdict, strict_json

Payload = dict[str, Any]
Result = dict[str, Any]
KERNEL = "kernel.py"
TAIL = 4000
FOLDER = "cutesmith-eval-"
LIBRARIES = "libraries"
SUSPICIOUS = (ExitCode.USAGE, ExitCode.CRASHED, ExitCode.TIMED_OUT, ExitCode.UNAVAILABLE)
"""What a vanished or broken GPU looks like from inside a verdict; then the GPU itself is asked."""


def run_stage(stage: str, payload: Payload) -> Result:
    """The result of one stage."""
    with recorded_holds() as holds:
        result = _without_our_folders(STAGE_FUNCTIONS[stage](payload))
    gpu = f"{socket.gethostname()}:{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}"
    return {"verdicts": {}, "gpu_lost": "", **result, "gpu": gpu, "holds": [asdict(hold) for hold in holds]}


def _without_our_folders(result: Result) -> Result:
    """Files by their names alone: the folders of this process mean nothing to anybody, and are new each time."""
    folder = re.escape(os.path.join(tempfile.gettempdir(), FOLDER))
    plain: Result = json.loads(re.sub(f"{folder}[^/]+/{FILES}/((task|{LIBRARIES})/)?", "", strict_json(result)))
    return plain


def carried(name: str, data: bytes) -> dict[str, str]:
    """A file as a payload carries it."""
    return {"name": name, "data": base64.b64encode(data).decode()}


def uncarried(file: dict[str, str]) -> bytes:
    """The bytes of such a file."""
    return base64.b64decode(file["data"])


@contextmanager
def _files(payload: Payload) -> Iterator[tuple[Path, Path]]:
    """The task and the kernel (where there is one) as files of a folder that goes away; the judge only reads them."""
    with scratch_folder(prefix=FOLDER) as folder:
        task = folder / "task" / Path(payload["task"]["name"]).name
        task.parent.mkdir()
        task.write_bytes(uncarried(payload["task"]))
        kernel = folder / KERNEL
        if "kernel" in payload:
            kernel.write_bytes(uncarried(payload["kernel"]))
        yield task, kernel


def _check(payload: Payload) -> Result:
    """Lint, which is advice, and compilation for the target, which decides."""
    from cutesmith.compiling.compilation import compile_kernel
    from cutesmith.lint import lint_file

    settings = JudgeSettings(**payload["settings"])
    with _files(payload) as (task, kernel):
        verdicts = {"lint": said("lint", lambda: lint_file(kernel))}
        if verdicts["lint"]["exit_code"] != ExitCode.USAGE:  # else it is no Python file at all
            verdicts["compile"] = said(
                "compile",
                lambda: compile_kernel(kernel, (settings.arch,), problem=task, timeout=settings.timeout),
            )
    return {"verdicts": verdicts}


def _verify(payload: Payload) -> Result:
    from cutesmith.judge.verification import verify_kernel
    from cutesmith.timing.entries import import_alike

    settings = JudgeSettings(**payload["settings"])
    with _files(payload) as (task, kernel):
        verdict = said(
            VERIFY,
            lambda: verify_kernel(
                kernel,
                problem=task,
                on=settings.on,
                rtol=settings.rtol,
                atol=settings.atol,
                arch=settings.arch,
                seeds=settings.seeds,
                timeout=settings.timeout,
                alike=import_alike,
            ),
        )
    return {"verdicts": {VERIFY: verdict}, **_gpu_state(verdict, settings)}


def _benchmark(payload: Payload) -> Result:
    from cutesmith.timing.benchmark import benchmark_kernel

    settings = JudgeSettings(**payload["settings"])
    with _files(payload) as (task, kernel):
        verdict = said(
            BENCHMARK,
            lambda: benchmark_kernel(
                kernel,
                problem=task,
                baselines=_libraries(payload, kernel.parent / LIBRARIES),
                rounds=settings.rounds,
                compiled=settings.compile_baseline,
                timeout=settings.benchmark_timeout,
                arch=settings.arch,
                rtol=settings.rtol,
                atol=settings.atol,
            ),
        )
    return {"verdicts": {BENCHMARK: verdict}, **_gpu_state(verdict, settings)}


def _libraries(payload: Payload, folder: Path) -> list[str]:
    """The library baselines, written into a folder of their own, as the benchmark names them: file and function."""
    folder.mkdir()
    named = []
    for library in payload.get("libraries", ()):
        path = folder / Path(library["name"]).name
        path.write_bytes(uncarried(library))
        named.append(f"{path}:{library['function']}")
    return named


def _draft(payload: Payload) -> Result:
    """The offline generator's kernel: its verdict, and the file if there is one.

    A single configuration needs no race, and it is verified by the judge in any case: the generator only compiles it.
    """
    from cutesmith.patterns.generation.generate import generate_kernel

    settings, maker = JudgeSettings(**payload["settings"]), payload["maker"]
    on = "compile" if maker["configurations"] == 1 else settings.on
    with _files(payload) as (task, kernel):
        verdict = said(
            DRAFT,
            lambda: generate_kernel(
                task,
                arch=settings.arch,
                out=kernel.parent / "out",
                on=on,
                configurations_limit=maker["configurations"],
                benchmark=False,
                use_cache=maker["race_cache"],
            ),
        )
        made = kernel.parent / "out" / KERNEL
        text = {"kernel": carried(KERNEL, made.read_bytes())} if verdict.get("kernel") and made.is_file() else {}
    return {"verdict": verdict, **_gpu_state(verdict, settings), **text}


def _session(payload: Payload) -> Result:
    """A session with a model, in a folder of the run; goes on with the one that is there."""
    from cutesmith.agent.transcript import FILE
    from cutesmith.verb_process import run_verb

    folder, options = Path(payload["folder"]), [f"--agent={payload['agent']}", "--yes", "--quiet", *payload["options"]]
    with _files(payload) as (task, _):
        begun = _begun(folder / FILE)
        what = [f"--resume={folder}"] if begun else [f"--out={folder}", f"--on={payload['settings']['on']}"]
        arguments = [*options, *what, *(() if begun else (f"--arch={payload['settings']['arch']}", "--", str(task)))]
        try:
            verdict = asyncio.run(run_verb("generate", *arguments, keys=True, lender=lend_fork_server))
        except CutesmithError as error:
            verdict = failure(SESSION, error.exit_code, str(error))
    made = folder / KERNEL
    text = {"kernel": carried(KERNEL, made.read_bytes())} if verdict.get("kernel") and made.is_file() else {}
    return {"verdict": verdict, **text}


def _begun(transcript: Path) -> bool:
    """Whether there is a session to go on with; what a process left that was killed before is taken away."""
    if transcript.is_file() and b'"kind": "session"' in transcript.read_bytes():
        return True
    shutil.rmtree(transcript.parent, ignore_errors=True)
    return False


def said(stage: str, judge: Callable[[], Verdict]) -> dict[str, Any]:
    """A stage's verdict as data; what it raises is one too."""
    try:
        return judge().to_dict()
    except CandidateError as error:
        return failure(stage, error.exit_code, str(error), rule=str(error.rule or ""), log_tail=error.log_tail[-TAIL:])
    except CutesmithError as error:
        return failure(stage, error.exit_code, str(error))
    except Exception as error:  # a bug of ours: it must not end the run, and it is no word on the kernel
        tail = "".join(traceback.format_exception(error))[-TAIL:]
        return failure(stage, ExitCode.INTERNAL, f"{type(error).__name__}: {error}", log_tail=tail)


def failure(stage: str, code: ExitCode, summary: str, **more: Any) -> dict[str, Any]:
    """A verdict of a stage that gave none of its own."""
    return {"stage": stage, "status": code.name.lower(), "exit_code": int(code), "summary": summary, **more}


def _gpu_state(verdict: dict[str, Any], settings: JudgeSettings) -> dict[str, str]:
    """Why this GPU can judge nobody at the moment, and what others hold of its memory; "" where the verdict stands."""
    if settings.on != "gpu" or verdict["exit_code"] not in SUSPICIOUS:
        return {}
    from cutesmith.evals.engines.gpu_probe import probe

    found = probe()
    return {"gpu_lost": found.lost, "gpu_taken": found.taken}


STAGE_FUNCTIONS: dict[str, Callable[[Payload], Result]] = {
    DRAFT: _draft,
    SESSION: _session,
    CHECK: _check,
    VERIFY: _verify,
    BENCHMARK: _benchmark,
}

"""A Python script, or `-m MODULE`, of somebody else on the emulated GPU, in a confined process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.devices import DEFAULT_ARCH, parse_arch
from cutesmith.emulator.requirements import import_emulator, require_emulator
from cutesmith.errors import CandidateError, UnavailableError, UsageError
from cutesmith.judge.rounds import START_SECONDS
from cutesmith.profiling.requests import Start
from cutesmith.profiling.scripts.requests import RunScript, ScriptRan
from cutesmith.sandbox.failures import own_code
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker
from cutesmith.verdicts import ExitCode, ScriptTest, ScriptVerdict
from cutesmith.verdicts.emulation import told

GRACE_SECONDS = 10.0  # between the interrupt of a script whose time is over and the end of its process
_WORST_FIRST = (
    ExitCode.INTERNAL,
    ExitCode.CRASHED,
    ExitCode.DOES_NOT_COMPILE,
    ExitCode.WRONG_RESULT,
    ExitCode.TIMED_OUT,
    ExitCode.UNAVAILABLE,
)
_TAIL = 20_000


def run_script(
    words: Sequence[str],
    *,
    arch: str | None = None,
    timeout: float = 300.0,
    readable: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
    follow: Callable[[str], None] | None = None,
) -> ScriptVerdict:
    """Run `words`, "FILE ARGS…" or "-m MODULE ARGS…", unmodified; its launches are executed with the sanitizer.

    The process may read the script's folder (the current folder where the script lies beneath it), what ARGS name and
    `readable`, and write into a folder that is gone afterwards. `follow` is given what the script prints. What
    the script does wrong is in the verdict. Raises UsageError for a file that is not there.
    """
    begin = time.monotonic()
    try:
        arch = str(parse_arch(arch or DEFAULT_ARCH))
    except UsageError as error:
        raise UnavailableError(f"the emulated GPU lacks it: {error.message}", hint=error.hint) from error
    folder = Path.cwd()
    request = RunScript(
        words=_absolute(words),
        folder=folder,
        readable=(*_readable(words, folder), *(path.resolve() for path in readable)),
        arch=arch,
        seconds=timeout,
    )
    blank = ScriptVerdict(exit_code=ExitCode.PASSED, summary="", script=tuple(words), arch=arch)
    return replace(_run(request, blank, dict(environment or {}), follow), seconds=round(time.monotonic() - begin, 3))


def runner() -> HandlerMaker:
    """What the worker runs: its imports, whose failure is not the script's, and the class of its handler."""
    with own_code():
        from cutesmith.profiling.scripts.script_worker import ScriptRun

    return ScriptRun


def _absolute(words: Sequence[str]) -> tuple[str, ...]:
    """The script by its whole path; `-m MODULE` as it is."""
    if not words or (words[0] == "-m" and len(words) < 2):
        raise UsageError("--script needs a file, or -m and a module", hint="cutesmith emulate --script FILE ARGS…")
    if words[0] == "-m":
        return tuple(words)
    path = Path(words[0])
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file", hint="--script takes a Python file, or -m and a module.")
    return (str(path.resolve()), *words[1:])


def _readable(words: Sequence[str], folder: Path) -> tuple[Path, ...]:
    """What the script may read beside the installation; never a home folder whole, or what holds one."""
    if words[0] == "-m":
        folders = [folder]
    else:
        script = Path(words[0]).resolve()
        folders = [script, folder if script.is_relative_to(folder) else script.parent]
    named = [Path(word.split("::")[0]) for word in words[1:] if not word.startswith("-")]
    folders += [path.resolve() for path in named if path.exists()]
    if words[:2] == ["-m", "pytest"]:  # it looks for conftest.py beside a test
        folders += [path.resolve().parent for path in named if path.is_file()]
    return tuple(path for path in folders if not (path.is_dir() and Path.home().is_relative_to(path)))


def _run(
    request: RunScript, blank: ScriptVerdict, environment: dict[str, str], follow: Callable[[str], None] | None
) -> ScriptVerdict:
    limits = Limits(call_seconds=request.seconds + GRACE_SECONDS, memory_bytes=fair_memory(16 * GIB))
    variables = {"CUTE_DSL_ARCH": request.arch, "QUACK_CACHE_ENABLED": "0", **environment}
    name = " ".join(blank.script[:2]) if blank.script[0] == "-m" else Path(blank.script[0]).name
    try:
        require_emulator()
        with Worker(
            runner,
            preload=(import_emulator,),
            limits=limits,
            environment=variables,
            subject="the script",
            follow=follow,
        ) as worker:
            worker.call(Start(), timeout=START_SECONDS)
            reply = worker.call(request, timeout=limits.call_seconds)
            return concluded(blank, reply, name, worker.log_tail)
    except CandidateError as error:  # the process died, or did not answer in time
        tail = error.log_tail[-_TAIL:]
        return replace(
            blank, exit_code=error.exit_code, summary=f"{name}: {error.message}", hint=error.hint, log_tail=tail
        )


def concluded(blank: ScriptVerdict, reply: ScriptRan, name: str, log_tail: str) -> ScriptVerdict:
    """The verdict on what the worker replied: findings count most, then the worst of its tests, then its own end."""
    verdict = replace(
        blank,
        kernels=reply.kernels,
        faults=reply.faults,
        tests=reply.tests,
        notes=reply.notes,
        confinement=reply.confinement,
        log_tail=log_tail[-_TAIL:],
    )
    launches = sum(kernel.launches for kernel in verdict.kernels)
    done = f"{launches} launch{'es' if launches != 1 else ''}"
    tests = f"; {counted(verdict.tests)}" if verdict.tests else ""
    error, faults = reply.error, verdict.faults
    if faults and not (error is not None and error.exit_code == ExitCode.INTERNAL):
        what = told([each.fault for each in faults])
        then = f"; then {error.message}" if error is not None and error.exit_code != ExitCode.CRASHED else ""
        return replace(verdict, exit_code=ExitCode.CRASHED, summary=f"{name}: {what}{then}{tests}")
    if error is not None:
        return replace(verdict, exit_code=error.exit_code, summary=f"{name}: {error.message}{tests}", hint=error.hint)
    if worst := next((code for code in _WORST_FIRST if any(t.exit_code == code for t in verdict.tests)), None):
        first = next(test for test in verdict.tests if test.exit_code == worst)
        reason = first.reason.strip().splitlines()[0] if first.reason.strip() else "it gave no reason"
        return replace(verdict, exit_code=worst, summary=f"{name}: {counted(verdict.tests)}; {first.name}: {reason}")
    if verdict.tests and all(test.outcome == "skipped" for test in verdict.tests):
        summary = f"{name}: every test was skipped: {verdict.tests[0].reason}"
        return replace(verdict, exit_code=ExitCode.UNAVAILABLE, summary=summary)
    if not launches:
        hint = "Nothing was checked: call it with arguments that launch a CuTe DSL kernel."
        return replace(verdict, exit_code=ExitCode.USAGE, summary=f"{name}: it launched no kernel{tests}", hint=hint)
    return replace(verdict, summary=f"{name}: {done} without findings{tests}")


def counted(tests: Sequence[ScriptTest]) -> str:
    """Such as "12 tests passed, 1 failed"."""
    outcomes = [test.outcome for test in tests]
    words = ("passed", "failed", "crashed", "not executed", "skipped")
    counts = [f"{outcomes.count(word)} {word}" for word in words if word in outcomes]
    return ", ".join([f"{len(tests)} test{'s' if len(tests) != 1 else ''}: {counts[0]}", *counts[1:]])

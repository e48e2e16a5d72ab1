"""The child's side of `run_script`: runs a script as Python would, its launches on the emulated GPU."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cutesmith.emulator.device import EmulatedDevice, emulated_device
from cutesmith.emulator.faults import Finding, once
from cutesmith.emulator.machine.launch import LaunchReport
from cutesmith.emulator.ptx.syntax import Location
from cutesmith.judge.candidate_side.kernel_file import start_device
from cutesmith.profiling.requests import RunError, Start
from cutesmith.profiling.scripts.endings import TimeUp, ending_of, print_traceback
from cutesmith.profiling.scripts.requests import RunScript, ScriptRan
from cutesmith.profiling.scripts.stand_ins import script_stand_ins
from cutesmith.recording.facade import active_facade
from cutesmith.recording.patches import Patches
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.failures import own_code
from cutesmith.verdicts import EmulatedFault, ScriptFault, ScriptKernel

_MOST_FAULTS = 200


class ScriptRun:
    """One script: answers `Start`, then `RunScript`."""

    def __init__(self) -> None:
        self._outcomes: Any = None  # of pytest's tests
        self._notes: list[str] = []

    def handle(self, request: Start | RunScript) -> ScriptRan | None:
        """Dispatch on the class; what the script does wrong is in the reply, an exception is our own."""
        with own_code():
            if isinstance(request, RunScript):
                return self._run(request)
            start_device("emulator")
            return None

    def _run(self, request: RunScript) -> ScriptRan:
        confinement = confine(readable=request.readable)
        tempfile.tempdir = None  # the fork server may have asked for it in a folder of its own
        os.chdir(request.folder)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        script = request.folder if request.words[0] == "-m" else Path(request.words[0])
        device: EmulatedDevice | None = None
        error: RunError | None = None
        try:
            with contextlib.ExitStack() as opened:
                device = opened.enter_context(emulated_device(request.arch))
                patches, facade = opened.enter_context(Patches()), active_facade()
                assert facade is not None
                script_stand_ins(patches, facade, self._notes)
                with _time_limit(request.seconds):
                    error = self._execute(list(request.words), device, lambda raised: self._ending(raised, request))
                if self._outcomes is None:
                    device.check()
                device.forget_failure()
        except BaseException as raised:  # noqa: BLE001 - a script raises what it likes
            print_traceback(raised, script)
            error = ending_of(raised, script, request.seconds)
        launches = device.launches if device else []
        return ScriptRan(
            kernels=tuple(_by_kernel(launches)),
            faults=tuple(self._faults(launches))[:_MOST_FAULTS],
            tests=tuple(self._outcomes.tests) if self._outcomes else (),
            notes=tuple(self._notes),
            confinement=confinement,
            error=error,
        )

    def _ending(self, raised: BaseException, request: RunScript) -> RunError | None:
        return ending_of(raised, Path(request.words[-1]), request.seconds)

    def _execute(
        self, words: list[str], device: EmulatedDevice, ending: Callable[[BaseException], RunError | None]
    ) -> RunError | None:
        """As `python WORDS` does; pytest with a plugin that notes what came of each test."""
        if words[0] != "-m":
            sys.argv, sys.path[:0] = words, [str(Path(words[0]).parent)]
            runpy.run_path(words[0], run_name="__main__")
            return None
        _, module, *arguments = words
        sys.argv, sys.path[:0] = [module, *arguments], [os.getcwd()]
        if module != "pytest":
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return None
        from cutesmith.profiling.scripts.pytest_outcomes import Outcomes, run_pytest

        self._outcomes = Outcomes(device, ending)
        return run_pytest(arguments, self._outcomes)

    def _faults(self, launches: list[LaunchReport]) -> Iterator[ScriptFault]:
        """Findings of all launches, those of one kind at one line of a kernel once."""
        merged: dict[tuple[str, str, str, str], ScriptFault] = {}
        for number, report in enumerate(launches):
            for finding in once(report.findings):
                fault = _fault(finding)
                key = (report.kernel, fault.kind, fault.where, fault.other)
                test = self._outcomes.owner(number) if self._outcomes else ""
                merged.setdefault(key, ScriptFault(report.kernel, test, fault))
        yield from merged.values()


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Within it the main thread is interrupted by TimeUp after so many seconds."""

    def interrupt(number: int, frame: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _by_kernel(launches: list[LaunchReport]) -> Iterator[ScriptKernel]:
    groups: dict[str, list[LaunchReport]] = {}
    for report in launches:
        groups.setdefault(report.kernel, []).append(report)
    for kernel, reports in groups.items():
        yield ScriptKernel(
            kernel=kernel,
            launches=len(reports),
            grid=reports[0].launch.grid,
            block=reports[0].launch.block,
            instructions=sum(report.instructions for report in reports),
            seconds=round(sum(report.seconds for report in reports), 3),
        )


def _fault(finding: Finding) -> EmulatedFault:
    return EmulatedFault(
        kind=finding.kind,
        message=finding.message,
        where=_place(finding.location),
        thread=finding.thread,
        block=finding.block,
        other=_place(finding.other) if finding.other else "",
        count=finding.count,
    )


def _place(location: Location | None) -> str:
    """Such as "softmax.py:31": the innermost line that is not the DSL's own; a script's kernels lie in many files."""
    place = location
    while place is not None and "cutlass" in Path(place.file).parts and place.inlined_at is not None:
        place = place.inlined_at
    return f"{Path(place.file).name}:{place.line}" if place else "an unknown line"

"""The processes of one tuning run: each compiles some of the tilings, all at the same time, and times its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from cutesmith.emulator.requirements import import_emulator
from cutesmith.errors import CandidateError
from cutesmith.judge.rounds import START_SECONDS
from cutesmith.recording.dsl_import import import_dsl
from cutesmith.runtime.requests import (
    Compile,
    Load,
    MachineRates,
    MeasureMachine,
    PlanFacts,
    Prepare,
    Round,
    Start,
    TimerFacts,
)
from cutesmith.runtime.trials import NOT_COMPILED, NOT_RUN, Trial
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Pending, Worker
from cutesmith.verdicts import ExitCode


def tiling_trials() -> HandlerMaker:
    """What a trial process runs: its imports, and the class of its handler."""
    from cutesmith.runtime.trials_worker import Trials

    return Trials


@dataclass(frozen=True)
class Subject:
    """What every process of a run is asked first, and seconds for one step of one tiling."""

    start: Start
    load: Load
    timeout: float


@dataclass
class TrialProcess:
    """One process and the tilings (by place) that it holds compiled; `prepared` are those that were launched."""

    subject: Subject
    compiled: list[int] = field(default_factory=list)
    prepared: list[int] = field(default_factory=list)
    _worker: Worker | None = None

    def open(self) -> None:
        """Start the process and hand it its first request; `loaded` must follow."""
        start, load = self.subject.start, self.subject.load
        gpu = start.device == "cuda"
        memory = fair_memory((32 if gpu else 16) * GIB)
        self._worker = Worker(
            tiling_trials,
            preload=(import_dsl if gpu else import_emulator,),
            limits=Limits(call_seconds=self.subject.timeout, memory_bytes=memory),
            gpu=gpu,
            environment={"CUTE_DSL_ARCH": start.arch},
            subject=load.path.name,
        )
        self._worker.start()
        self._started = self._worker.send(start)

    def loaded(self) -> tuple[TimerFacts, PlanFacts]:
        """What the process says of its timer and its plan; raises CandidateError for a file that makes none."""
        return self._started.reply(timeout=START_SECONDS), self.worker.call(self.subject.load)

    @property
    def worker(self) -> Worker:
        """The process."""
        assert self._worker is not None, "open() comes first"
        return self._worker

    def has_fallen(self, error: CandidateError) -> bool:
        """Whether the process is dead, or its GPU context lost, which is the same."""
        return not self.worker.alive or error.context_lost

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class TrialProcesses:
    """Processes for the tilings of one subject; `trials` are kept up to date, whatever falls."""

    def __init__(self, subject: Subject) -> None:
        self.processes = [TrialProcess(subject)]
        self.trials: list[Trial] = []

    def __enter__(self) -> TrialProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.close()

    def describe(self) -> tuple[TimerFacts, PlanFacts]:
        """Start the first process; what it says of its timer and its plan."""
        self.processes[0].open()
        return self.processes[0].loaded()

    def widen(self, count: int) -> None:
        """Have `count` processes, the new ones started at once."""
        added = [TrialProcess(self.processes[0].subject) for _ in range(count - len(self.processes))]
        self.processes += added
        for process in added:
            process.open()
        for process in added:
            process.loaded()

    def compile(self, places: Sequence[int], report: Callable[[int], None]) -> None:
        """Compile the tilings at these places, one a process at a time, all processes at once."""
        width, done = len(self.processes), 0
        for first in range(0, len(places), width):
            batch = list(zip(self.processes, places[first : first + width], strict=False))
            asked = [process.worker.send(Compile(index)) for process, index in batch]
            for (process, index), pending in zip(batch, asked, strict=True):
                self._compiled(process, index, pending)
                done += 1
                report(done)

    def _compiled(self, process: TrialProcess, index: int, pending: Pending[float]) -> None:
        with self._dropping(process, index, NOT_COMPILED):
            seconds = pending.reply()
            process.compiled.append(index)
            self.trials[index] = replace(self.trials[index], compile_seconds=round(seconds, 3))

    def prepare(self) -> None:
        """First launches of everything that was compiled."""
        for process in self.processes:
            for index in list(process.compiled):
                self._prepare(process, index)

    def _prepare(self, process: TrialProcess, index: int) -> None:
        with self._dropping(process, index, NOT_RUN):
            process.worker.call(Prepare(index))
            if index not in process.prepared:
                process.prepared.append(index)

    def running(self) -> Iterator[int]:
        """The places of all tilings that can be timed."""
        return (index for process in self.processes for index in process.prepared)

    def round(self, index: int) -> tuple[float, ...]:
        """Samples of one round (microseconds); empty when the tiling fails, which its trial then says."""
        for process in self.processes:
            if index in process.prepared:
                with self._dropping(process, index, NOT_RUN):
                    return process.worker.call(Round(index))
        return ()

    def machine(self) -> MachineRates:
        """What the device can do, as the first process measures it; nothing when that fails."""
        try:
            return self.processes[0].worker.call(MeasureMachine())
        except CandidateError:
            return MachineRates()

    @contextlib.contextmanager
    def _dropping(self, process: TrialProcess, index: int, state: str) -> Iterator[None]:
        """A tiling that fails inside is out; a process that fell with it starts again, with all else that it held."""
        try:
            yield
        except CandidateError as error:
            self.drop(index, state, error)
            compiled, prepared = (
                [other for other in held if other != index] for held in (process.compiled, process.prepared)
            )
            process.compiled, process.prepared = compiled, prepared
            if not process.has_fallen(error):
                return
            process.compiled, process.prepared = [], []
            process.close()
            process.open()
            process.loaded()
            for other in compiled:
                self._compiled(process, other, process.worker.send(Compile(other)))
            for other in prepared:
                if other in process.compiled:
                    self._prepare(process, other)

    def drop(self, index: int, state: str, error: CandidateError) -> None:
        """A compiler's refusal stays; a run, or a limit of time, may end differently another time."""
        may_pass = state == NOT_RUN or error.exit_code == ExitCode.TIMED_OUT
        self.trials[index] = self.trials[index].failed(state, error.message, error.log_tail, may_pass=may_pass)

"""The processes of one tuning run: each compiles some of the tilings, all at the same time, and times its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cutesmith.emulator.emulator_import import import_emulator
from cutesmith.errors import CandidateError
from cutesmith.judge.rounds import START_SECONDS
from cutesmith.recording.dsl_import import import_dsl
from cutesmith.runtime.tiling import Problem, Tiling, with_tuples
from cutesmith.runtime.trials import NOT_COMPILED, NOT_RUN, Trial
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker
from cutesmith.verdicts import ExitCode


def tiling_trials() -> HandlerMaker:
    """What a lane's worker runs: its imports, and the class of its handler."""
    from cutesmith.runtime.trials_worker import Trials

    return Trials


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What every lane loads: a file's function and its inputs, for a device ("cuda", "emulator") and architecture.

    `inputs` are descriptions of written tensors, or None for those of the file's `get_inputs` under `seed`; `timer` is
    `module:Class` of another timer than the device's own, "" for that.
    """

    path: Path
    function: str
    device: str
    arch: str
    timer: str
    inputs: Sequence[Mapping[str, Any]] | None
    seed: int
    timeout: float

    def start_request(self) -> dict[str, Any]:
        """Bring up the device."""
        return {"do": "start", "device": self.device, "arch": self.arch, "timer": self.timer}

    def load_request(self) -> dict[str, Any]:
        """Make the plan."""
        about = {"path": str(self.path), "function": self.function, "seed": self.seed}
        return {"do": "load", **about, "inputs": None if self.inputs is None else list(self.inputs)}


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """What a process says of its plan, and of the timer that it uses."""

    tilings: tuple[Tiling, ...]
    problem: Problem
    flops: int
    bytes: int
    inputs: str
    timer: str
    repeats: bool
    is_time: bool


@dataclass(frozen=True)
class MachineRates:
    """Bytes a second of a copy, operations a second of a matrix product; None where nothing was measured."""

    copy: float | None = None
    matmul: float | None = None


@dataclass
class Lane:
    """One process and the tilings (by place) that it holds compiled; `prepared` are those that were launched."""

    subject: Subject
    compiled: list[int] = field(default_factory=list)
    prepared: list[int] = field(default_factory=list)
    worker: Worker | None = None

    def open(self) -> None:
        """Start the process and hand it its first request; `loaded` must follow."""
        subject, gpu = self.subject, self.subject.device == "cuda"
        limits = Limits(wall_seconds=subject.timeout, memory_bytes=fair_memory((32 if gpu else 16) * GIB))
        environment = {"CUTE_DSL_ARCH": subject.arch}
        self.worker = Worker(
            tiling_trials,
            preload=(import_dsl if gpu else import_emulator,),
            limits=limits,
            gpu=gpu,
            environment=environment,
            subject=subject.path.name,
        )
        self.worker.start()
        self.worker.send(subject.start_request())

    def loaded(self) -> PlanFacts:
        """What the process says of the plan, with its timer; raises CandidateError with what is wrong with the file."""
        assert self.worker is not None, "open() comes first"
        timer = self.worker.receive(timeout=START_SECONDS)
        plan = self.worker.call(self.subject.load_request())
        return PlanFacts(
            tilings=tuple(map(Tiling.from_dict, plan["tilings"])),
            problem=Problem(**with_tuples(plan["problem"])),
            **{name: plan[name] for name in ("flops", "bytes", "inputs")},
            **{name: timer[name] for name in ("timer", "repeats", "is_time")},
        )

    def send(self, do: str, index: int) -> None:
        """Ask for a step of one tiling."""
        assert self.worker is not None, "open() comes first"
        self.worker.send({"do": do, "index": index})

    def receive(self) -> dict[str, Any]:
        """The reply to `send`; raises CandidateError."""
        assert self.worker is not None, "open() comes first"
        return self.worker.receive()

    def call(self, do: str, index: int) -> dict[str, Any]:
        """Both at once."""
        self.send(do, index)
        return self.receive()

    def has_fallen(self, error: CandidateError) -> bool:
        """Whether the process is dead, or its GPU context lost, which is the same."""
        return self.worker is None or not self.worker.alive or is_cuda_error(error.message)

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


def is_cuda_error(message: str) -> bool:
    """Whether torch, the driver or the runtime says so ("CUDA error: …", CUDA_ERROR_…, cudaError…): no later launch of
    the process can be trusted.
    """
    return re.search(r"cuda[ _]?error", message, re.IGNORECASE) is not None


class Lanes:
    """Lanes for the tilings of one subject; `trials` are kept up to date, whatever falls."""

    def __init__(self, subject: Subject) -> None:
        self.lanes = [Lane(subject)]
        self.trials: list[Trial] = []

    def __enter__(self) -> Lanes:
        return self

    def __exit__(self, *error: object) -> None:
        for lane in self.lanes:
            lane.close()

    def describe(self) -> PlanFacts:
        """Start the first process; what it says of the plan."""
        self.lanes[0].open()
        return self.lanes[0].loaded()

    def widen(self, count: int) -> None:
        """Have `count` processes, the new ones started at once."""
        added = [Lane(self.lanes[0].subject) for _ in range(count - len(self.lanes))]
        self.lanes += added
        for lane in added:
            lane.open()
        for lane in added:
            lane.loaded()

    def compile(self, places: Sequence[int], report: Callable[[int], None]) -> None:
        """Compile the tilings at these places, one a lane at a time, all lanes at once."""
        waiting, done = list(places), 0
        while waiting:
            batch = list(zip(self.lanes, waiting, strict=False))
            del waiting[: len(batch)]
            for lane, index in batch:
                lane.send("compile", index)
            for lane, index in batch:
                self._compiled(lane, index)
                done += 1
                report(done)

    def _compiled(self, lane: Lane, index: int) -> None:
        try:
            seconds = lane.receive()["seconds"]
        except CandidateError as error:
            self.drop(index, NOT_COMPILED, error)
            if lane.has_fallen(error):
                self._raise_again(lane)
            return
        lane.compiled.append(index)
        self._change(index, compile_seconds=round(seconds, 3))

    def prepare(self) -> None:
        """First launches of everything that was compiled."""
        for lane in self.lanes:
            for index in list(lane.compiled):
                self._step(lane, "prepare", index)

    def running(self) -> Iterator[int]:
        """The places of all tilings that can be timed."""
        return (index for lane in self.lanes for index in lane.prepared)

    def round(self, index: int) -> list[float]:
        """Samples of one round (microseconds); empty when the tiling fails, which its trial then says."""
        lane = next((lane for lane in self.lanes if index in lane.prepared), None)
        reply = self._step(lane, "round", index) if lane is not None else None
        samples: list[float] = reply["samples_us"] if reply else []
        return samples

    def machine(self) -> MachineRates:
        """What the device can do, as the first lane measures it; nothing when that fails."""
        try:
            worker = self.lanes[0].worker
            return MachineRates(**worker.call({"do": "machine"})) if worker is not None else MachineRates()
        except CandidateError:
            return MachineRates()

    def _step(self, lane: Lane, do: str, index: int) -> dict[str, Any] | None:
        """One request that may fail: then the tiling is out, and a process that fell with it starts again."""
        try:
            reply = lane.call(do, index)
        except CandidateError as error:
            self.drop(index, NOT_RUN, error)
            for places in (lane.compiled, lane.prepared):
                if index in places:
                    places.remove(index)
            if lane.has_fallen(error):
                self._raise_again(lane)
            return None
        if do == "prepare" and index not in lane.prepared:
            lane.prepared.append(index)
        return reply

    def _raise_again(self, lane: Lane) -> None:
        """A fresh process in the place of one that fell, with everything that it held but what made it fall."""
        compiled, prepared = lane.compiled, lane.prepared
        lane.compiled, lane.prepared = [], []
        lane.close()
        lane.open()
        lane.loaded()
        for index in compiled:
            lane.send("compile", index)
            self._compiled(lane, index)
        for index in prepared:
            if index in lane.compiled:
                self._step(lane, "prepare", index)

    def drop(self, index: int, state: str, error: CandidateError) -> None:
        """A compiler's refusal stays; a run, or a limit of time, may end differently another time."""
        may_pass = state == NOT_RUN or error.exit_code == ExitCode.TIMED_OUT
        self.trials[index] = self.trials[index].failed(state, error.message, error.log_tail, may_pass=may_pass)

    def _change(self, index: int, **fields: Any) -> None:
        self.trials[index] = replace(self.trials[index], **fields)

"""Time every tiling of a kernel under development, and say which is the fastest.

Tilings that the device would refuse are skipped before anything is compiled; the others are compiled in several
confined processes at once, then timed in interleaved rounds. What failed is recorded with its reason. A complete result
is kept in the cache, so that the same question on the same device is answered at once.
"""

from __future__ import annotations

import inspect
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cutesmith.devices import DEFAULT_ARCH, Device, current_device, parse_arch
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.judge.rounds import exchange, new_seed
from cutesmith.judge.transfer.requests import Value
from cutesmith.problems.contract import problem_source
from cutesmith.runtime.neighbours import imported_sources
from cutesmith.runtime.plan import PLAN_NAME
from cutesmith.runtime.requests import Load, MachineRates, PlanFacts, Start, TimerFacts
from cutesmith.runtime.tiling import Tiling
from cutesmith.runtime.trial_processes import Subject, TrialProcesses
from cutesmith.runtime.trials import SKIPPED, TIMED, WAITING, AutotuneResult, Trial
from cutesmith.runtime.tuning_cache import (
    TuningCache,
    TuningKey,
    compiler_versions,
    device_identity,
    source_hashes,
)
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.messages import name_of
from cutesmith.verdicts.reading import read_record

if TYPE_CHECKING:
    from cutesmith.runtime.timers import Timer

ROUNDS = 5
MOST_JOBS = 8
TILINGS_A_JOB = 4


class Progress(Protocol):
    """Told of every step: the stage's name, how many of its steps are done, how many there are, and a remark."""

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None: ...


def silent(stage: str, done: int, total: int, message: str = "") -> None:
    """Progress that is not shown."""


def autotune(
    kernel: str | Path | Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    *,
    on: str = "auto",
    arch: str | None = None,
    cache: TuningCache | None = None,
    use_cache: bool = True,
    jobs: int | None = None,
    rounds: int = ROUNDS,
    timer: type[Timer] | None = None,
    timeout: float = 120.0,
    progress: Progress | None = None,
) -> AutotuneResult:
    """Time the tilings of a plan: `kernel` is a file with `plan_fn`, `file.py:function`, or such a function itself.

    `inputs` default to the file's `get_inputs()`. `on` is "auto" (the GPU, else the emulated one, whose order rests on
    counts and not on time), "gpu" or "emulator". `jobs` processes compile at once (default: one for four tilings,
    at most 8 and a core each); `rounds` interleaved rounds; `timer` another than the device's own;
    `timeout` seconds for one step of one tiling. The file may import modules and packages from its own folder; they
    are part of the cache's key as the file is, what is installed is not.
    Raises UsageError, ContractError and CandidateError for a file that makes no plan, UnavailableError without a GPU.
    """
    begin = time.monotonic()
    path, function = _file_of(kernel)
    place = _place(on, arch)
    if rounds < 1 or (jobs is not None and jobs < 1) or not timeout > 0:
        raise UsageError("rounds, jobs and timeout must be positive")
    timer_name = name_of(timer) if timer else ""  # by which the workers import it
    run = _Run(path, function, place, timer_name, rounds, jobs, timeout, progress or silent)
    store = cache or TuningCache()
    key = run.key(inputs)
    if use_cache and (known := _remembered(store, key)) is not None:
        return replace(known, seconds=time.monotonic() - begin)
    result = run.tune(inputs)
    kept = use_cache and result.complete and store.put(key, result)
    return replace(result, kept=kept, seconds=time.monotonic() - begin)


def _remembered(store: TuningCache, key: TuningKey) -> AutotuneResult | None:
    known = store.get(key)
    if known is None:
        return None
    try:
        return replace(read_record(AutotuneResult, known.result), cached=True, kept=True)
    except (AttributeError, TypeError):  # written by another version
        return None


def remembered_results(
    kernel: Callable[..., Any], inputs: Sequence[Any], cache: TuningCache
) -> Iterator[AutotuneResult]:
    """What the cache holds of a plan's function for such inputs on this machine's GPU, tuned as is usual.

    First that for inputs that were given, then that for the file's own where those were the same.
    """
    place = _place("auto", None)
    path, function = _file_of(kernel)
    run = _Run(path, function, place, "", ROUNDS, None, 1.0, silent)
    for given in (inputs, None):
        known = _remembered(cache, run.key(given))
        if known is not None and known.inputs == _signature(inputs):
            yield known


def _file_of(kernel: str | Path | Callable[..., Any]) -> tuple[Path, str]:
    """The file and the name of the plan's function."""
    if callable(kernel):
        file, name = inspect.getsourcefile(inspect.unwrap(kernel)), getattr(kernel, "__qualname__", "")
        if file is None or not Path(file).is_file() or not name.isidentifier():
            raise UsageError(
                f"{kernel!r:.100} is not a function at the top level of a file", hint="Give file.py:function."
            )
        return Path(file).resolve(), name
    text, _, function = str(kernel).rpartition(":")
    if not function.isidentifier() or not text:
        text, function = str(kernel), PLAN_NAME
    return Path(text).resolve(), function


@dataclass(frozen=True)
class _Place:
    """Where it runs: "cuda" or "emulator", the architecture, and the GPU's or the emulated one's name."""

    device: str
    arch: str
    name: str
    gpu: Device | None = None


def _place(on: str, arch: str | None) -> _Place:
    if on not in ("auto", "gpu", "emulator"):
        raise UsageError(f"on={on!r}: there is no such place", hint="Use auto, gpu or emulator.")
    wanted = parse_arch(arch) if arch else None
    gpu = current_device() if on != "emulator" else None
    if gpu is None or gpu.sm is None:
        if on == "gpu":
            raise UnavailableError("nothing can be timed: this machine has no NVIDIA GPU of a known SM")
        name = str(wanted or DEFAULT_ARCH)
        return _Place("emulator", name, f"emulated {name}")
    return _Place("cuda", gpu.fitting_arch(str(wanted) if wanted else None), gpu.name, gpu)


@dataclass
class _Run:
    """One run over the tilings of a plan."""

    path: Path
    function: str
    place: _Place
    timer: str
    rounds: int
    jobs: int | None
    timeout: float
    tell: Progress

    def key(self, inputs: Sequence[Any] | None) -> TuningKey:
        """The question that this run answers; nothing is run for it but the file read."""
        gpu = self.place.gpu
        where = f"{device_identity(gpu) if gpu else self.place.name}, {self.place.arch}"
        return TuningKey(
            sources=source_hashes([problem_source(self.path), self.function, *imported_sources(self.path)]),
            device=where,
            inputs="get_inputs()" if inputs is None else _signature(inputs),
            method=f"{self.timer or self.place.device}, {self.rounds} rounds",
            versions=compiler_versions(),
        )

    def tune(self, inputs: Sequence[Any] | None) -> AutotuneResult:
        """Skip, compile, time."""
        with exchange() as folder, TrialProcesses(self._subject(inputs, folder)) as trying:
            with gpu_lock(self.place.device, exclusive=False):
                timer, plan = trying.describe()
                for tiling in map(Tiling.from_dict, plan.tilings):
                    trial, refused = Trial(tiling=tiling), tiling.validate(plan.shape, self.place.arch)
                    trying.trials.append(trial.failed(SKIPPED, "; ".join(refused)) if refused else trial)
                self._compile(trying)
            machine = MachineRates()
            if any(process.compiled for process in trying.processes):
                with gpu_lock(self.place.device, exclusive=True):
                    self._time(trying, self.rounds if timer.repeats else 1)
                    machine = trying.machine()
            return self._result(trying.trials, timer, plan, machine)

    def _subject(self, inputs: Sequence[Any] | None, folder: Path) -> Subject:
        start = Start(self.place.device, self.place.arch, self.timer)
        written = None if inputs is None else _written(inputs, folder / "inputs")
        return Subject(
            start, Load(path=self.path, function=self.function, inputs=written, seed=new_seed()), self.timeout
        )

    def _compile(self, trying: TrialProcesses) -> None:
        places = [index for index, trial in enumerate(trying.trials) if trial.state == WAITING]
        if not places:
            return
        trying.widen(min(len(places), self.jobs or usual_jobs(len(places))))
        self.tell("compile", 0, len(places), f"{len(trying.trials) - len(places)} skipped")
        trying.compile(places, lambda done: self.tell("compile", done, len(places)))

    def _time(self, trying: TrialProcesses, rounds: int) -> None:
        """Interleaved rounds in random order: what heats or slows the device down meets every tiling."""
        order = random.Random(secrets.randbits(64))
        trying.prepare()
        self.tell("time", 0, rounds)
        for number in range(rounds):
            running = list(trying.running())
            for index in order.sample(running, len(running)):
                samples = trying.round(index)
                trial = trying.trials[index]
                if samples:
                    trying.trials[index] = replace(trial, state=TIMED, samples_us=trial.samples_us + samples)
            self.tell("time", number + 1, rounds)

    def _result(
        self, trials: Sequence[Trial], timer: TimerFacts, plan: PlanFacts, machine: MachineRates
    ) -> AutotuneResult:
        return AutotuneResult(
            trials=tuple(trials),
            device=self.place.name,
            timer=timer.timer,
            is_time=timer.is_time,
            inputs=plan.inputs,
            measured=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            flops=plan.flops,
            bytes=plan.bytes,
            copy_bytes_per_second=machine.copy,
            matmul_flops_per_second=machine.matmul,
            source=f"{self.path.name}:{self.function}",
        )


def usual_jobs(count: int) -> int:
    """How many processes compile `count` kernels: one for four: starting one takes as long as compiling several."""
    return min(os.cpu_count() or 1, MOST_JOBS, -(-count // TILINGS_A_JOB))


def _written(inputs: Sequence[Any], folder: Path) -> tuple[Value, ...]:
    """The inputs as files, so that every process has the same."""
    from cutesmith.judge.transfer.tensors import write_value

    folder.mkdir(parents=True, exist_ok=True)
    return tuple(write_value(value, folder / f"{index}") for index, value in enumerate(inputs))


def _signature(inputs: Sequence[Any]) -> str:
    """Shapes, strides and dtypes in a line; a scalar by its value."""
    from cutesmith.judge.transfer.tensors import summarize

    return summarize(inputs)

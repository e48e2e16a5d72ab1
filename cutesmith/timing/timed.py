"""The handlers of the two processes of a benchmark: candidates in one, the problem and its baselines in the other."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import torch

from cutesmith.errors import ContractError, UnavailableError
from cutesmith.judge.candidate_side.kernel_file import candidate_code, hold_text, load_kernel, start_device
from cutesmith.judge.candidate_side.outputs import same_bytes, take_outputs
from cutesmith.judge.reference_side.confined_problem import ConfinedProblem
from cutesmith.judge.reference_side.problem_calls import native_outputs, seed_everything
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Judge, Judged
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.device_memory import release_unused
from cutesmith.judge.transfer.requests import Give, Scalar, Start, Take, TensorFile, Value
from cutesmith.judge.transfer.tensors import bytes_of, bytes_of_values, copy_of
from cutesmith.judge.transfer.transfer import Transfer
from cutesmith.problems.arguments import of_values
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.messages import Request
from cutesmith.sandbox.readable import INPUTS
from cutesmith.timing import requests
from cutesmith.timing.algorithmic_work import counting, work_of
from cutesmith.timing.fresh_values import apply, nudge, nudges, refresh
from cutesmith.timing.stopwatch import Function, Stopwatch, peak_bytes_per_second
from cutesmith.verdicts import Violation

ESTIMATES = 5


@dataclass
class Bench:
    """Named functions, rotating copies of their inputs, and outputs that were kept for judgement."""

    functions: dict[str, Function] = field(default_factory=dict)
    copies: list[list[Any]] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def watch(self) -> Stopwatch:
        """The stopwatch, made at first use."""
        return Stopwatch()

    def actions(self) -> dict[type[Request[Any]], Callable[[Any], Any]]:
        """What the parent may ask of candidates and of baselines."""
        return {
            requests.Round: self.round,
            requests.WarmUp: self.warm_up,
            requests.Estimate: self.estimate,
            requests.Host: self.host,
            requests.Burst: self.burst,
        }

    def round(self, request: requests.Round) -> tuple[float, ...]:
        """Fresh values, and others for each launch; `keep` holds back one output for `collect`."""
        for copy in self.copies:
            refresh(copy, request.shift)
        changes = nudges(self.copies, request.shift, request.launches)
        with torch.no_grad():
            samples, output = self.watch.round(
                self.functions[request.name],
                self.copies,
                launches=request.launches,
                host_us=request.host_us,
                keep=request.keep,
                changes=changes,
            )
        if request.keep >= 0:
            self.kept[request.tag] = output
        return tuple(samples)

    def warm_up(self, request: requests.WarmUp) -> requests.WarmedUp:
        """First calls and estimates."""
        with torch.no_grad():
            times = self.watch.warm_up(self.functions[request.name], self.copies)
        return requests.WarmedUp(**times, l2_bytes=self.watch.l2_bytes)

    def estimate(self, request: requests.Estimate) -> float:
        """Device time of a few launches, now that no one else uses the GPU."""
        function = self.functions[request.name]
        with torch.no_grad():
            samples, _ = self.watch.round(function, self.copies, launches=ESTIMATES, host_us=request.host_us)
        return median(samples)

    def host(self, request: requests.Host) -> float:
        """Host time of one call."""
        with torch.no_grad():
            return self.watch.host_us(self.functions[request.name], self.copies)

    def burst(self, request: requests.Burst) -> None:
        """Launches for the parent's own clock."""
        with torch.no_grad():
            self.watch.burst(self.functions[request.name], self.copies, request.launches)


class TimedCandidates:
    """One or more stripped kernel files, loaded and timed in a confined process."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.transfer = Transfer()
        self.paths: dict[str, Path] = {}

    def handle(self, request: Request[Any]) -> Any:
        """The reply to one request; what a candidate raises becomes a CandidateError."""
        actions: dict[type[Request[Any]], Callable[[Any], Any]] = {
            Start: self.start,
            requests.Load: self.load,
            requests.Inputs: self.inputs,
            requests.Collect: self.collect,
            requests.Changes: self.changes,
            Give: self.transfer.give,
            Take: self.transfer.take,
            **self.bench.actions(),
        }
        with candidate_code(self.paths.get(getattr(request, "name", ""), Path("kernel.py"))):
            return actions[type(request)](request)

    def start(self, request: Start) -> None:
        """Bring up the device and confine the process."""
        self.transfer = Transfer(request.largest_file, "cuda")
        start_device("cuda")
        self.bench.watch  # noqa: B018 - the flush buffer and its kernels come before the confinement
        self.surroundings = Surroundings()
        confine(readable=[Path.cwd().parent / INPUTS])

    def load(self, request: requests.Load) -> None:
        """Load one kernel file under a name."""
        path = hold_text(request.source, Path(request.path).name, len(self.paths))
        self.paths[request.name] = path
        self.bench.functions[request.name] = load_kernel(path)

    def inputs(self, request: requests.Inputs) -> None:
        """Take the rotating copies from files, and from what was taken."""
        self.bench.copies = [[_value_of(value, self.transfer) for value in copy] for copy in request.copies]
        self.transfer.taken.clear()
        release_unused()

    def collect(self, request: requests.Collect) -> requests.Collected:
        """Write a kept output to files."""
        returned = self.bench.kept.pop(request.tag)
        outputs, violations = take_outputs(returned)
        folder = Path(request.folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = tuple(self.transfer.write_tensor(output, folder / f"{i}") for i, output in enumerate(outputs))
        return requests.Collected(files, type(returned) is tuple, tuple(violations))

    def changes(self, request: requests.Changes) -> tuple[Violation, ...]:
        """What the candidates changed of the process (rules T2, T4, H1)."""
        return tuple(self.surroundings.changes())


class TimedBaselines(Reference):
    """The problem, with its reference as eager and compiled baseline, and functions of other files."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.matmul_rates: dict[str, float | None] = {}
        self.pristine: dict[str, torch.Tensor] = {}  # large inputs as they were drawn, by their files
        self.files: tuple[tuple[Value, ...], ...] = ()  # of the copies as they were drawn

    def actions(self) -> dict[type[Request[Any]], Callable[[Any], Any]]:
        """Which method answers which request."""
        return {
            **super().actions(),
            **self.bench.actions(),
            requests.Baseline: self.baseline,
            requests.Prepare: self.prepare,
            requests.Machine: self.machine,
            requests.JudgeAt: self.judge_at,
            requests.Compare: self.compare,
        }

    def start(self, request: Start) -> None:
        """Bring up the device, and take hold of the clocks before any file is run."""
        super().start(request)
        self.bench.watch  # noqa: B018 - the flush buffer and its kernels

    def baseline(self, request: requests.Baseline) -> None:
        """Make a baseline callable: eager, torch.compile, or `file.py:function`."""
        function: Function = self.loaded.reference_fn
        if request.mode:  # the function itself, without what gathers its arguments
            function = of_values(torch.compile(self.loaded.module.reference_fn, mode=request.mode, dynamic=False))
        elif request.path:
            function = of_values(_function_of(request.path, request.function))
        self.bench.functions[request.name] = function

    def compare(self, request: requests.Compare) -> str:
        """Whether the function of another file computes what the reference does: what is wrong, empty where nothing."""
        values = self.bench.copies[0]
        given = [copy_of(value) for value in values]
        outputs, is_tuple = native_outputs(self.bench.functions[request.name], given)
        for index, (after, before) in enumerate(zip(given, values)):
            if isinstance(after, torch.Tensor) and not same_bytes(bytes_of(after), bytes_of(before)):
                return f"it changes input {index}, on which the others run too"
        self.drawn["compared"] = values
        layouts = [tensors.describe_layout(output) for output in outputs]
        judged = self.judged("compared", layouts, lambda: outputs, is_tuple=is_tuple, tolerances=request.tolerances)
        return judged.violation.text if judged.violation else ""

    def prepare(self, request: requests.Prepare) -> requests.Prepared:
        """Draw the rotating copies, write or offer them, and count the algorithm's bytes."""
        copies: list[tuple[Value, ...]] = []
        for index, seed in enumerate(request.seeds):
            if index >= 2 and bytes_of_values(self.bench.copies[0]) > 4 * self.bench.watch.l2_bytes:
                break  # two large copies already leave the cache
            seed_everything(seed)
            values = self._inputs(-1)
            folder = Path(request.folder) / str(index)
            folder.mkdir(parents=True, exist_ok=True)
            copies.append(tuple(self.transfer.write_value(v, folder / f"{i}") for i, v in enumerate(values)))
            self.pristine |= self.transfer.offered
            self.bench.copies.append([copy_of(value) for value in values])
        self.files = tuple(copies)
        inputs = self.bench.copies[0]
        (outputs, _), counted = counting(lambda *values: self.known.native(values), inputs)
        read, written = bytes_of_values(inputs), bytes_of_values(outputs)
        work = work_of(self.loaded.module, inputs, read + written, counted)
        del outputs
        release_unused()
        return requests.Prepared(self.files, tensors.summarize(inputs), read, written, work)

    def machine(self, request: requests.Machine) -> requests.MachineRates:
        """Copy bandwidth, theoretical peak (bytes a second) and matrix products of `dtypes` (FLOP/s), measured once."""
        for dtype in request.dtypes:
            if dtype not in self.matmul_rates:
                self.matmul_rates[dtype] = self.bench.watch.matmul_flops_per_second(getattr(torch, dtype))
        rates = {dtype: self.matmul_rates[dtype] for dtype in request.dtypes}
        return requests.MachineRates(self.bench.watch.copy_bytes_per_second(), peak_bytes_per_second(), rates)

    def judge_at(self, request: requests.JudgeAt) -> Judged:
        """Judge an output of a timed launch, with what the copy that it ran on had become by then."""
        copies, launch, rounds = self.files, request.kept.launch, request.kept.rounds
        copy = copies[launch % len(copies)]
        values = [self._as_drawn(description) for description in copy]
        for number, (shift, launches) in enumerate(rounds, start=1):
            refresh(values, shift)
            count = launch + 1 if number == len(rounds) else launches
            for index in range(launch % len(copies), count, len(copies)):
                apply(nudge(values, shift, index))
        self.drawn["timed"] = values
        return self.judge(Judge("timed", request.collected.outputs, request.collected.is_tuple, request.tolerances))

    def _as_drawn(self, value: Value) -> Any:
        kept = self.pristine.get(value.file) if isinstance(value, TensorFile) else None
        return _value_of(value, self.transfer) if kept is None else copy_of(kept)


class ConfinedCompilingBaselines(ConfinedProblem):
    """Baselines of an untrusted problem, with compilers.

    This process starts them itself: helpers of torch's would have to be confined too.
    """

    def __init__(self) -> None:
        config: Any = importlib.import_module("torch._inductor.config")
        config.compile_threads = 1
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "8"  # of this process, each with a compiler, while it autotunes
        super().__init__(TimedBaselines, caches=("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))


def _value_of(value: Value, transfer: Transfer) -> Any:
    return tensors.read_scalar(value) if isinstance(value, Scalar) else transfer.read_tensor(value)


def _function_of(path: str, name: str) -> Function:
    """`name` of a Python file, the file run as it stands.

    Raises ContractError, and UnavailableError where the file cannot be run here: a library that is not installed, or
    that does not get on with another.
    """
    spec = importlib.util.spec_from_file_location(f"baseline_{Path(path).stem}", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ContractError(f"--baseline {path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        text = f"{Path(path).name} cannot be imported here: {type(error).__name__}: {error}"
        raise UnavailableError(text) from error
    function: Function | None = getattr(module, name, None)
    if not callable(function):
        raise ContractError(f"--baseline {path}:{name}: the file defines no function {name}")
    return function

"""The handlers of the two processes of a benchmark: candidates in one, the problem and its baselines in the other."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from cutesmith.errors import ContractError, UnavailableError
from cutesmith.judge.candidate_side.candidate import candidate_code, hold_text, load_kernel, start_device
from cutesmith.judge.candidate_side.outputs import bytes_of, same_bytes, take_outputs
from cutesmith.judge.candidate_side.watching import Surroundings
from cutesmith.judge.crossing import tensors
from cutesmith.judge.crossing.device_memory import own_copies, release_unused
from cutesmith.judge.crossing.pieces import WHOLE
from cutesmith.judge.crossing.relay import Relay
from cutesmith.judge.crossing.tensors import bytes_of_values, copy_of
from cutesmith.judge.reference_side.confined_problem import ConfinedProblem
from cutesmith.judge.reference_side.problem_calls import native_outputs, seed_everything
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.renewable import Renewable
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.readable import INPUTS
from cutesmith.timing.algorithmic_work import counting, work_of
from cutesmith.timing.fresh_values import apply, nudge, nudges, refresh
from cutesmith.timing.stopwatch import Function, Stopwatch, peak_bytes_per_second

Request = dict[str, Any]
Reply = dict[str, Any]
ESTIMATES = 5


@dataclass
class Bench:
    """Named functions, rotating copies of their inputs, and outputs that were kept for judgement."""

    functions: dict[str, Function] = field(default_factory=dict)
    copies: list[list[Any]] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)
    stopwatch: Stopwatch | None = None

    @property
    def watch(self) -> Stopwatch:
        """The stopwatch, made at first use."""
        if self.stopwatch is None:
            self.stopwatch = Stopwatch()
        return self.stopwatch

    @property
    def actions(self) -> dict[str, Callable[[Request], Reply]]:
        """What the parent may ask of candidates and of baselines alike."""
        timed = {"round": self.round, "warm_up": self.warm_up, "estimate": self.estimate}
        return {**timed, "host": self.host, "burst": self.burst}

    def round(self, request: Request) -> Reply:
        """Fresh values, and others for each launch; `keep` holds back one output for `collect`."""
        for copy in self.copies:
            refresh(copy, request["shift"])
        changes = nudges(self.copies, request["shift"], request["launches"])
        with torch.no_grad():
            samples, output = self.watch.round(
                self.functions[request["name"]],
                self.copies,
                launches=request["launches"],
                host_us=request["host_us"],
                keep=request["keep"],
                changes=changes,
            )
        if request["keep"] >= 0:
            self.kept[request["tag"]] = output
        return {"samples_us": samples}

    def refresh_only(self, request: Request) -> Reply:
        """Keep step with the other process, so that both see the same values in every round."""
        for copy in self.copies:
            refresh(copy, request["shift"])
        return {}

    def warm_up(self, request: Request) -> Reply:
        """First calls and estimates."""
        with torch.no_grad():
            return {**self.watch.warm_up(self.functions[request["name"]], self.copies), "l2_bytes": self.watch.l2_bytes}

    def estimate(self, request: Request) -> Reply:
        """Device time of a few launches, now that nobody else uses the GPU."""
        function, host_us = self.functions[request["name"]], request["host_us"]
        with torch.no_grad():
            samples, _ = self.watch.round(function, self.copies, launches=ESTIMATES, host_us=host_us)
        return {"device_us": median(samples)}

    def host(self, request: Request) -> Reply:
        """Host time of one call."""
        with torch.no_grad():
            return {"host_us": self.watch.host_us(self.functions[request["name"]], self.copies)}

    def burst(self, request: Request) -> Reply:
        """Launches for the parent's own clock."""
        with torch.no_grad():
            self.watch.burst(self.functions[request["name"]], self.copies, request["launches"])
        return {}


class TimedCandidates:
    """One or more stripped kernel files, loaded and timed in a confined process."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.relay = Relay()
        self.paths: dict[str, Path] = {}

    def handle(self, request: Request) -> Reply:
        """Dispatch on `request["do"]`; what a candidate raises becomes a CandidateError."""
        own = {"start": self.start, "load": self.load, "inputs": self.inputs, "collect": self.collect}
        own |= {"give": self.relay.give, "take": self.take, "changes": self.changes}
        actions = {**own, **self.bench.actions}
        with candidate_code(self.paths.get(request.get("name", ""), Path("kernel.py"))):
            return actions[request["do"]](request)

    def start(self, request: Request) -> Reply:
        """Bring up the device and confine the process."""
        self.relay = Relay(request.get("largest_file", WHOLE))
        start_device("cuda")
        self.bench.watch  # noqa: B018 - the flush buffer and its kernels come before the confinement
        self.surroundings = Surroundings()
        return {"confinement": confine(readable=[Path.cwd().parent / INPUTS])}

    def load(self, request: Request) -> Reply:
        """Load one kernel file under a name."""
        path = hold_text(request["source"], Path(request["path"]).name, len(self.paths))
        self.paths[request["name"]] = path
        self.bench.functions[request["name"]] = load_kernel(path)
        return {}

    def inputs(self, request: Request) -> Reply:
        """Take the rotating copies from files, and from what was taken."""
        self.bench.copies = [_read(copy, self.relay) for copy in request["copies"]]
        self.relay.taken.clear()
        release_unused()
        return {}

    def take(self, request: Request) -> Reply:
        """Take a piece of a large input."""
        return self.relay.take(request, "cuda")

    def collect(self, request: Request) -> Reply:
        """Write a kept output to files."""
        returned = self.bench.kept.pop(request["tag"])
        outputs, problems = take_outputs(returned)
        folder = Path(request["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        files = [self.relay.write_tensor(output, folder / f"{i}") for i, output in enumerate(outputs)]
        return {"outputs": files, "tuple": type(returned) is tuple, "problems": problems}

    def changes(self, request: Request) -> Reply:
        """What the candidates changed of the process (rules T2, T4, H1)."""
        return {"changes": self.surroundings.changes()}


class TimedBaselines(Reference):
    """The problem, with its reference as eager and compiled baseline, and functions of other files."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.shifts: dict[str, int] = {}
        self.matmul_rates: dict[str, float | None] = {}
        self.pristine: dict[str, torch.Tensor] = {}  # large inputs as they were drawn, by their files

    def handle(self, request: Request) -> Reply:
        """Dispatch on `request["do"]`."""
        own = {"baseline": self.baseline, "prepare": self.prepare, "machine": self.machine, "judge_at": self.judge_at}
        own |= {"compare": self.compare, "refresh": self.bench.refresh_only}
        actions = {**own, **self.bench.actions}
        action = actions.get(request["do"], super().handle)
        with own_copies(self.draws_large):
            return action(request)

    def start(self, request: Request) -> Reply:
        """Bring up the device, and take hold of the clocks before any file is run."""
        reply = super().start(request)
        self.bench.watch  # noqa: B018 - the flush buffer and its kernels
        return reply

    def baseline(self, request: Request) -> Reply:
        """Make a baseline callable: eager, torch.compile, or `file.py:function`."""
        kind, name = request["kind"], request["name"]
        if kind == "eager":
            self.bench.functions[name] = self.loaded.reference_fn
        elif kind == "compile":
            self.bench.functions[name] = torch.compile(self.loaded.reference_fn, mode=request["mode"], dynamic=False)
        else:
            self.bench.functions[name] = _function_of(request["path"], request["function"])
        return {}

    def compare(self, request: Request) -> Reply:
        """Whether the function of another file computes what the reference does: what is wrong, empty where nothing."""
        values = self.bench.copies[0]
        given = [copy_of(value) for value in values]
        outputs, is_tuple = native_outputs(self.bench.functions[request["name"]], given)
        for index, (after, before) in enumerate(zip(given, values)):
            if isinstance(after, torch.Tensor) and not same_bytes(bytes_of(after), bytes_of(before)):
                return {"problem": f"it changes input {index}, on which the others run too"}
        self.drawn["compared"] = values
        described = [tensors.describe_layout(output) for output in outputs]
        request = {**request, "key": "compared", "tuple": is_tuple, "outputs": described}
        wrong = self.judged(request, lambda: outputs)["violation"]
        return {"problem": wrong.text if wrong else ""}

    def prepare(self, request: Request) -> Reply:
        """Draw the rotating copies, write or offer them, and count the algorithm's bytes."""
        copies: list[list[tensors.Description]] = []
        for index, seed in enumerate(request["seeds"]):
            if index >= 2 and bytes_of_values(self.bench.copies[0]) > 4 * self.bench.watch.l2_bytes:
                break  # two large copies already leave the cache
            seed_everything(seed)
            values = self._inputs(-1)
            folder = Path(request["folder"]) / str(index)
            folder.mkdir(parents=True, exist_ok=True)
            copies.append([self.relay.write_value(v, folder / f"{i}") for i, v in enumerate(values)])
            self.pristine |= self.relay.offered
            self.bench.copies.append([copy_of(value) for value in values])
        self.drawn["pristine"] = [copies]
        inputs = self.bench.copies[0]
        (outputs, _), counted = counting(lambda *values: self._native(values), inputs)
        moved = {"read_bytes": bytes_of_values(inputs), "written_bytes": bytes_of_values(outputs)}
        work = work_of(self.loaded.module, inputs, sum(moved.values()), counted)
        described = {"bytes": work.bytes, "flops": dict(work.flops)}
        del outputs
        release_unused()
        return {"copies": copies, "inputs": tensors.summarize(inputs), **moved, "work": described}

    def machine(self, request: Request) -> Reply:
        """Copy bandwidth, theoretical peak (bytes a second) and matrix products of `dtypes` (FLOP/s), measured once."""
        for dtype in request["dtypes"]:
            if dtype not in self.matmul_rates:
                self.matmul_rates[dtype] = self.bench.watch.matmul_flops_per_second(getattr(torch, dtype))
        bandwidth = {"copy": self.bench.watch.copy_bytes_per_second(), "peak": peak_bytes_per_second()}
        return {**bandwidth, "matmul": {dtype: self.matmul_rates[dtype] for dtype in request["dtypes"]}}

    def judge_at(self, request: Request) -> Reply:
        """Judge an output of a timed launch, with what the copy that it ran on had become by then."""
        copies, launch = self.drawn["pristine"][0], request["launch"]
        copy = copies[launch % len(copies)]
        values = [self._as_drawn(description) for description in copy]
        for number, (shift, launches) in enumerate(request["rounds"], start=1):
            refresh(values, shift)
            count = launch + 1 if number == len(request["rounds"]) else launches
            for index in range(launch % len(copies), count, len(copies)):
                apply(nudge(values, shift, index))
        self.drawn["timed"] = values
        return self.judge({**request, "key": "timed"})

    def _as_drawn(self, description: tensors.Description) -> Any:
        kept = self.pristine.get(description.get("file", ""))
        return _value_of(description, self.relay) if kept is None else copy_of(kept)


class RenewableBaselines(Renewable):
    """Baselines of one trusted problem after another."""

    def __init__(self) -> None:
        super().__init__(TimedBaselines)


class ConfinedBaselines(ConfinedProblem):
    """Baselines of an untrusted problem, without torch.compile."""

    def __init__(self) -> None:
        super().__init__(TimedBaselines())


class ConfinedCompilingBaselines(ConfinedProblem):
    """The same with compilers, which this process starts itself: helpers of torch's would have to be confined too."""

    def __init__(self) -> None:
        config: Any = importlib.import_module("torch._inductor.config")
        config.compile_threads = 1
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "8"  # of this process, each with a compiler, while it autotunes
        super().__init__(TimedBaselines(), caches=("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))


def _read(copy: Sequence[tensors.Description], relay: Relay) -> list[Any]:
    return [_value_of(description, relay) for description in copy]


def _value_of(description: tensors.Description, relay: Relay) -> Any:
    return tensors.read_scalar(description) if "scalar" in description else relay.read_tensor(description, "cuda")


def _function_of(path: str, name: str) -> Function:
    """`name` of a Python file, the file run as it stands.

    Raises ContractError, and UnavailableError where the file cannot be run here: a library that is not installed, or
    that does not get on with another.
    """
    import importlib.util

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

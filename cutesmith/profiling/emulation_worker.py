"""The child's side of `profiling.emulation`: runs one kernel file on the emulated GPU and reports each launch."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cutesmith.compiling.compile_errors import describe_error
from cutesmith.devices import parse_arch
from cutesmith.errors import CandidateError, ContractError
from cutesmith.judge.candidate_side.candidate import candidate_code, start_device
from cutesmith.judge.crossing.tensors import copy_of, summarize
from cutesmith.judge.reference_side.cases import Fitted, fit, size_of
from cutesmith.judge.reference_side.problem_calls import seed_everything
from cutesmith.judge.reference_side.reference import EMULATED_ELEMENTS
from cutesmith.problems import contract
from cutesmith.problems.loading import load_file
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.failures import own_code
from cutesmith.verdicts import EmulatedFault, EmulatedLaunch, ExitCode

if TYPE_CHECKING:
    from cutesmith.emulator.device import EmulatedDevice
    from cutesmith.emulator.faults import Finding
    from cutesmith.emulator.machine.launch import LaunchReport
    from cutesmith.emulator.profiling.sampling import Profiler
    from cutesmith.emulator.tracer import Step, Tracer

CLOCK_HZ = 1.98e9  # the highest of an H200: a floor must not be above what a GPU can do
_PRINTED = 20_000
_PARAMETER = re.compile(r"\bkernel_\w+_param_(?=\d)")  # the DSL's names are long


class Emulation:
    """One call of `kernel_fn`: requests are {"do": "start"}, {"do": "prepare", "path", "problem", "sources", …}, and
    {"do": "emulate", …} with the same fields, which prepares what was not."""

    def __init__(self) -> None:
        self.prepared: dict[str, Any] = {}

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Dispatch on `request["do"]`; what the kernel does wrong is in the reply, an exception is our own."""
        with own_code():
            return {"start": self.start, "prepare": self.prepare, "emulate": self.emulate}[request["do"]](request)

    def start(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Import libraries, which takes seconds that are not the file's."""
        import cutesmith.emulator.device
        import cutesmith.emulator.profiling.launch_profile
        import cutesmith.emulator.tracer  # noqa: F401

        start_device("emulator")
        return {}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load the file and make its inputs; the reply tells of them, for the case that the call never ends."""
        self.path = Path(request["path"])
        self.profiler, self.tracer = _observers(request)
        self.device: EmulatedDevice | None = None
        self.about = {"inputs": "", "full_inputs": "", "input_bytes": 0, "output_bytes": 0, "size": ""}
        for path, source in request["sources"].items():
            contract.hold(path, source)
        self.prepared = {"confinement": confine()}
        self.prepared["error"] = self._told(lambda: self._load(request))
        return {"inputs": self.about["inputs"], "size": self.about["size"]}

    def emulate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call `kernel_fn`; launches until an error ended it are reported with that error."""
        if not self.prepared:
            self.prepare(request)
        prepared, self.prepared = self.prepared, {}
        error = prepared["error"] or self._told(self._call)
        launches = self._launches(request)
        return {**self.about, **prepared, "error": error, "launches": launches, **self._trace()}

    def _told(self, act: Callable[[], None]) -> dict[str, Any]:
        """Do it; what the kernel's file raises, as the reply tells it."""
        try:
            with candidate_code(self.path):
                act()
        except (CandidateError, ContractError) as raised:
            return _described(raised, self.path)
        return {}

    def _load(self, request: dict[str, Any]) -> None:
        from cutesmith.emulator.device import emulated_device
        from cutesmith.emulator.machine.settings import Settings

        observer = self.profiler or self.tracer
        with contextlib.ExitStack() as opened:
            emulated = emulated_device(request["arch"], settings=Settings(), observer=observer)
            self.device = opened.enter_context(emulated)
            problem = load_file(request["problem"]) if request["problem"] else None
            kernel = load_file(self.path, with_problem=problem is not None)
            seed_everything(request["seed"])
            self.values = self._inputs(problem or kernel, full=request["full"])
            contract.check_arity(kernel.kernel_fn, "kernel_fn", self.values)
            self.kernel_fn = kernel.kernel_fn
            self.opened = opened.pop_all()

    def _call(self) -> None:
        assert self.device is not None
        with self.opened:
            for number, value in enumerate(self.values):
                if isinstance(value, torch.Tensor):
                    self.device.name(value, f"input {number}")
            returned = self.kernel_fn(*self.values)
            outputs = returned if isinstance(returned, tuple) else (returned,)
            self.about["output_bytes"] = _bytes_of(outputs)

    def _inputs(self, problem: Any, *, full: bool) -> list[Any]:
        """The inputs of `get_inputs()`, with fewer rows unless all are asked for or the reference needs them."""
        values = contract.check_inputs(problem.get_inputs())
        fitted = Fitted(values, size_of(values, EMULATED_ELEMENTS, "not shrunk, as --full asks"))
        if not full:
            fitted = fit(values, EMULATED_ELEMENTS, lambda smaller: _refusal(problem.reference_fn, smaller))
        if summarize(fitted.values) != summarize(values):
            self.about["full_inputs"] = summarize(values)
        inputs, input_bytes = summarize(fitted.values), _bytes_of(fitted.values)
        self.about |= {"inputs": inputs, "input_bytes": input_bytes, "size": fitted.size}
        return fitted.values

    def _launches(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        reports = self.device.launches if self.device else []
        return [dataclasses.asdict(self._launch(number, report, request)) for number, report in enumerate(reports)]

    def _launch(self, number: int, report: LaunchReport, request: dict[str, Any]) -> EmulatedLaunch:
        launch = report.launch
        sampled = self.profiler is not None and number < len(self.profiler.samples)
        return EmulatedLaunch(
            kernel=report.kernel,
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            instructions=report.instructions,
            waves=report.waves,
            seconds=round(report.seconds, 4),
            completed=report.completed,
            printed=report.printed[-_PRINTED:],
            faults=tuple(_fault(finding, self.path) for finding in report.findings),
            profile=self._profile(number, request["arch"]) if sampled else {},
        )

    def _profile(self, number: int, arch: str) -> dict[str, Any]:
        from cutesmith.emulator.profiling.advice import advise, busiest_pipes, floor_us, line_clocks
        from cutesmith.emulator.profiling.launch_profile import as_dict, profile_of

        assert self.profiler is not None
        profile = profile_of(self.profiler.samples[number], self.path)
        processors = parse_arch(arch).sm.multiprocessors
        fields = as_dict(profile)
        for line, described in zip(profile.lines, fields["lines"], strict=True):
            described["clocks"] = round(line_clocks(line), 1)
        return {
            **fields,
            "advice": [dataclasses.asdict(advice) for advice in advise(profile)],
            "clocks": {name: round(clocks, 1) for name, clocks in busiest_pipes(profile)},
            "floor_us": round(floor_us(profile, processors, CLOCK_HZ), 4),
        }

    def _trace(self) -> dict[str, Any]:
        if self.tracer is None:
            return {"trace": [], "traced": ""}
        tracer = self.tracer
        name = f"launch {tracer.launch}, block {tracer.block}, warp {tracer.warp}, values of lane {tracer.lane}"
        steps = tracer.steps
        if not tracer.found:
            name = f"nothing: there is no {name.rpartition(',')[0]}"
        return {"trace": [_step(step, self.path) for step in steps], "traced": name}


def _described(error: CandidateError | ContractError, path: Path) -> dict[str, Any]:
    """What ended the run; the DSL's own errors as `cutesmith compile` tells them."""
    message, tail = error.message, getattr(error, "log_tail", "")
    if error.exit_code == ExitCode.DOES_NOT_COMPILE and error.__cause__ is not None:
        found = describe_error(error.__cause__, path, compiling=True)
        message, tail = f"{path.name}:{found.line}: {found.code}: {found.message}", ""
    return {"message": message, "hint": error.hint, "exit_code": error.exit_code, "log_tail": tail}


def _observers(request: dict[str, Any]) -> tuple[Profiler | None, Tracer | None]:
    from cutesmith.emulator.profiling.sampling import Profiler
    from cutesmith.emulator.tracer import Tracer

    if request["profile"]:
        return Profiler(), None
    if wanted := request["trace"]:
        place = (wanted["block"], wanted["warp"])
        return None, Tracer(*place, lane=wanted["lane"], launch=wanted["launch"], most_steps=wanted["steps"])
    return None, None


def _refusal(reference_fn: Callable[..., Any], values: Sequence[Any]) -> str:
    """Why the reference does not take these inputs; empty when it does."""
    try:
        reference_fn(*[copy_of(value) for value in values])
    except Exception as error:  # noqa: BLE001 - whatever it is, the reference refuses them
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def _bytes_of(values: Sequence[Any]) -> int:
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def _fault(finding: Finding, path: Path) -> EmulatedFault:
    from cutesmith.emulator.faults import own_line

    return EmulatedFault(
        kind=finding.kind.value,
        message=finding.message,
        where=own_line(finding.location, path),
        thread=finding.thread,
        block=finding.block,
        other=own_line(finding.other, path) if finding.other else "",
        count=finding.count,
    )


def _step(step: Step, path: Path) -> dict[str, Any]:
    from cutesmith.emulator.faults import own_line
    from cutesmith.emulator.ptx.printer import format_instruction
    from cutesmith.emulator.tracer import format_value

    values = {name: format_value(step.instruction, bits) for name, bits in step.values}
    where = own_line(step.instruction.location, path) if step.instruction.location else ""
    text = _PARAMETER.sub("param_", format_instruction(step.instruction))
    return {"where": where, "instruction": text, "mask": step.mask, "values": values}

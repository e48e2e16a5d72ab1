"""The child's side of `profiling.emulation`: runs one kernel file on the emulated GPU and reports each launch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from cutesmith.compiling.compile_errors import describe_error
from cutesmith.devices import parse_arch
from cutesmith.emulator.device import EmulatedDevice, emulated_device
from cutesmith.emulator.faults import Finding, once, own_line
from cutesmith.emulator.machine.launch import LaunchReport
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.profiling.advice import advise, busiest_pipes, floor_us, line_clocks
from cutesmith.emulator.profiling.launch_profile import AccessProfile, LaunchProfile, profile_of
from cutesmith.emulator.profiling.sampling import Profiler
from cutesmith.emulator.ptx.printer import format_instruction
from cutesmith.emulator.tracer import Step, Tracer, format_value
from cutesmith.errors import CandidateError, ContractError
from cutesmith.judge.candidate_side.kernel_file import candidate_code, start_device
from cutesmith.judge.reference_side.cases import Fitted, fit, size_of
from cutesmith.judge.reference_side.problem_calls import seed_everything
from cutesmith.judge.reference_side.reference import EMULATED_ELEMENTS
from cutesmith.judge.transfer.tensors import copy_of, summarize
from cutesmith.problems import contract
from cutesmith.problems.loading import load_file
from cutesmith.profiling.requests import Emulate, Emulated, Prepare, Prepared, RunError, Start
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.failures import own_code
from cutesmith.verdicts import (
    EmulatedAccess,
    EmulatedFault,
    EmulatedLaunch,
    EmulatedLine,
    EmulatedProfile,
    ExitCode,
    TraceStep,
)

CLOCK_HZ = 1.98e9  # the highest of an H200: a floor must not be above what a GPU can do
_PRINTED = 20_000
_PARAMETER = re.compile(r"\bkernel_\w+_param_(?=\d)")  # the DSL's names are long


class Emulation:
    """One call of `kernel_fn`: answers `Start`, and `Prepare` and `Emulate` in turn."""

    def handle(self, request: Start | Prepare | Emulate) -> Prepared | Emulated | None:
        """Dispatch on the class; what the kernel does wrong is in the reply, an exception is our own."""
        with own_code():
            if isinstance(request, Prepare):
                return self.prepare(request)
            if isinstance(request, Emulate):
                return self.emulate()
            start_device("emulator")
            return None

    def prepare(self, request: Prepare) -> Prepared:
        """Load the file and make its inputs."""
        self.request, self.path = request, request.path
        wanted = None if request.profile else request.trace
        self.profiler = Profiler() if request.profile else None
        self.tracer = None
        if wanted is not None:
            shown = {"lane": wanted.lane, "launch": wanted.launch, "most_steps": wanted.steps}
            self.tracer = Tracer(wanted.block, wanted.warp, **shown)
        self.device: EmulatedDevice | None = None
        self.inputs = self.full_inputs = self.size = ""
        self.tensor_bytes, self.shrunk, self.output_elements = 0, 1.0, 0
        for path, source in request.sources.items():
            contract.hold(path, source)
        self.confinement = confine()
        self.error = self._error_of(self._load)
        return Prepared(self.inputs, self.size)

    def emulate(self) -> Emulated:
        """Call `kernel_fn`; launches until an error ended it are reported with that error."""
        error = self.error or self._error_of(self._call)
        reports = self.device.launches if self.device else []
        return Emulated(
            inputs=self.inputs,
            full_inputs=self.full_inputs,
            tensor_bytes=self.tensor_bytes,
            output_elements=self.output_elements,
            shrunk=self.shrunk,
            launches=tuple(self._launch(number, report) for number, report in enumerate(reports)),
            trace=tuple(_step(step, self.path) for step in self.tracer.steps) if self.tracer else (),
            traced=_place_of(self.tracer) if self.tracer else "",
            confinement=self.confinement,
            error=error,
        )

    def _error_of(self, act: Callable[[], None]) -> RunError | None:
        """Do it; what the kernel's file raises, the DSL's own errors as `cutesmith compile` tells them."""
        try:
            with candidate_code(self.path):
                act()
        except (CandidateError, ContractError) as error:
            message, tail = error.message, getattr(error, "log_tail", "")
            if error.exit_code == ExitCode.DOES_NOT_COMPILE and error.__cause__ is not None:
                found = describe_error(error.__cause__, self.path, compiling=True)
                message, tail = f"{self.path.name}:{found.line}: {found.code}: {found.message}", ""
            return RunError(error.exit_code, message, error.hint, tail)
        return None

    def _load(self) -> None:
        request = self.request
        with contextlib.ExitStack() as opened:
            settings, observer = Settings(orders=request.orders), self.profiler or self.tracer
            emulated = emulated_device(request.arch, settings=settings, observer=observer)
            self.device = opened.enter_context(emulated)
            problem = load_file(request.problem) if request.problem else None
            kernel = load_file(self.path, with_problem=problem is not None)
            seed_everything(request.seed)
            self.values = self._inputs(problem or kernel, full=request.full)
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
            self.tensor_bytes += _bytes_of(outputs)
            self.output_elements = sum(one.numel() for one in outputs if isinstance(one, torch.Tensor))

    def _inputs(self, problem: Any, *, full: bool) -> list[Any]:
        """The inputs of `get_inputs()`; unless all are asked for, of its EMULATED_SIZES, or with fewer rows where the
        reference takes them."""
        values = contract.check_inputs(problem.get_inputs())
        fitted = Fitted(values, size_of(values, EMULATED_ELEMENTS, "not shrunk, as --full asks"))
        declared = getattr(problem.module, "EMULATED_SIZES", None)
        if not full and isinstance(declared, dict):
            smaller = contract.check_inputs(problem.get_inputs(**declared))
            fitted = Fitted(smaller, size_of(smaller, EMULATED_ELEMENTS))
        elif not full:
            fitted = fit(values, EMULATED_ELEMENTS, lambda smaller: _refusal(problem.reference_fn, smaller))
        if summarize(fitted.values) != summarize(values):
            self.full_inputs = summarize(values)
            self.shrunk = _bytes_of(values) / max(1, _bytes_of(fitted.values))
        self.inputs, self.size = summarize(fitted.values), fitted.size
        self.tensor_bytes = _bytes_of(fitted.values)
        return fitted.values

    def _launch(self, number: int, report: LaunchReport) -> EmulatedLaunch:
        launch, profile = report.launch, None
        if self.profiler is not None and number < len(self.profiler.samples):
            processors = parse_arch(self.request.arch).sm.multiprocessors
            profile = _described(profile_of(self.profiler.samples[number], self.path), processors)
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
            faults=tuple(_fault(finding, self.path) for finding in once(report.findings)),
            rings=tuple(ring for ring in report.rings if ring.stages > 1),
            profile=profile,
        )


def _described(profile: LaunchProfile, processors: int) -> EmulatedProfile:
    lines = tuple(
        EmulatedLine(
            file=line.file,
            line=line.line,
            lane_instructions=dict(line.lane_counts),
            warp_instructions=dict(line.warp_counts),
            flops=line.flops,
            tensor_core_macs=round(line.macs),
            accesses=tuple(map(_described_access, line.accesses)),
            clocks=round(line_clocks(line), 1),
        )
        for line in profile.lines
    )
    return EmulatedProfile(
        lane_instructions=profile.lane_counts,
        warp_instructions=profile.warp_counts,
        flops=sum(line.flops for line in lines),
        tensor_core_macs=round(sum(line.macs for line in profile.lines)),
        bytes={name: round(count) for name, count in profile.moved().items()},
        local_bytes_per_thread=profile.local_bytes,
        blocks=profile.launched,
        sampled_blocks=profile.blocks,
        sample_complete=profile.complete,
        lines=lines,
        advice=tuple(advise(profile)),
        clocks={name: round(clocks, 1) for name, clocks in busiest_pipes(profile)},
        floor_us=round(floor_us(profile, processors, CLOCK_HZ), 4),
    )


def _described_access(access: AccessProfile) -> EmulatedAccess:
    return EmulatedAccess(
        space=access.space,
        kind=access.kind,
        instruction=access.opcode,
        bytes_per_lane=access.size,
        lane_stride_bytes=access.lane_stride,
        requests=round(access.requests),
        bytes=round(access.bytes),
        lanes_at_one_address=access.contention,
        **{
            f"{name}_per_request": round(count / access.requests, 3)
            for name in ("sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
            if (count := getattr(access, name))
        },
    )


def _place_of(tracer: Tracer) -> str:
    """What was traced, or that there is no such warp."""
    place = f"launch {tracer.launch}, block {tracer.block}, warp {tracer.warp}"
    return f"{place}, values of lane {tracer.lane}" if tracer.found else f"nothing: there is no {place}"


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
    return EmulatedFault(
        kind=finding.kind,
        message=finding.message,
        where=own_line(finding.location, path),
        thread=finding.thread,
        block=finding.block,
        other=own_line(finding.other, path) if finding.other else "",
        count=finding.count,
    )


def _step(step: Step, path: Path) -> TraceStep:
    values = {name: format_value(step.instruction, bits) for name, bits in step.values}
    where = own_line(step.instruction.location, path) if step.instruction.location else ""
    text = _PARAMETER.sub("param_", format_instruction(step.instruction))
    return TraceStep(where, text, step.mask, values)

"""The child's side of `runtime.tuning`: it holds one file's plan, compiles some of its tilings and times them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cutesmith.errors import ContractError
from cutesmith.judge.candidate_side.kernel_file import candidate_code, start_device
from cutesmith.judge.reference_side.cases import fit
from cutesmith.judge.reference_side.problem_calls import seed_everything
from cutesmith.judge.reference_side.reference import EMULATED_ELEMENTS
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.requests import Scalar, Value
from cutesmith.problems import contract
from cutesmith.problems.contract import check_arity, check_inputs
from cutesmith.problems.loading import run_file
from cutesmith.runtime.neighbours import NeighbourFinder, neighbours_of
from cutesmith.runtime.plan import PLAN_LINES, CuteKernel, KernelPlan
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
from cutesmith.runtime.timers import TIMERS, Timer
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.messages import Request, imported
from cutesmith.timing.algorithmic_work import multiplied_dtype
from cutesmith.verdicts import strict_json


class Trials:
    """One file's plan on one device; `kernels` by the place of their tiling."""

    def __init__(self) -> None:
        self.path = Path("plan.py")
        self.kernels: dict[int, CuteKernel] = {}
        self.opened = ExitStack()

    def handle(self, request: Request[Any]) -> object:
        """Dispatch on the class; what the file raises becomes a CandidateError with its line."""
        with candidate_code(self.path), torch.no_grad():
            if isinstance(request, Start):
                return self.start(request)
            if isinstance(request, Load):
                return self.load(request)
            if isinstance(request, Compile):
                begin = time.perf_counter()
                kernel = self.plan.kernel(self.plan.tilings[request.index])
                kernel.compile()
                self.kernels[request.index] = kernel
                return time.perf_counter() - begin
            if isinstance(request, Prepare):
                self.timer.prepare(self.kernels[request.index])
                return None
            if isinstance(request, Round):
                return tuple(self.timer.round(self.kernels[request.index]))
            assert isinstance(request, MeasureMachine)
            dtype = getattr(torch, multiplied_dtype(self.plan.inputs))
            products = self.timer.matmul_flops_per_second(dtype) if self.plan.flops else None
            return MachineRates(self.timer.copy_bytes_per_second(), products)

    def start(self, request: Start) -> TimerFacts:
        """Import the DSL, bring up the device and the timer, while that is still allowed."""
        self.device = request.device
        start_device(self.device)
        kind = imported(request.timer) if request.timer else TIMERS[self.device]
        self.timer: Timer = kind(request.arch)
        self.opened.enter_context(self.timer.session())
        return TimerFacts(self.timer.name, self.timer.repeats, self.timer.is_time)

    def load(self, request: Load) -> PlanFacts:
        """Run the file, with what it imports from beside it, draw its inputs or take those given, and make the plan."""
        self.path = request.path
        contract.hold(self.path)  # once confined, it may read neither the file nor the inputs
        given = None if request.inputs is None else [_read(description) for description in request.inputs]
        neighbours = neighbours_of(self.path)
        confine(readable=tuple(neighbours.values()))
        sys.meta_path.insert(0, NeighbourFinder(neighbours))
        module = run_file(self.path)
        plan_fn = getattr(module, request.function, None)
        if not callable(plan_fn):
            raise ContractError(f"{self.path} defines no function {request.function}", hint=PLAN_LINES)
        inputs = self._drawn(module, plan_fn, request.seed) if given is None else given
        check_arity(plan_fn, request.function, inputs)
        self.plan = plan = KernelPlan.for_inputs(plan_fn, inputs)
        return PlanFacts(
            tilings=tuple(json.loads(strict_json(tiling.to_dict())) for tiling in plan.tilings),
            shape=replace(plan.shape, sizes=tuple(plan.shape.sizes), exact=tuple(plan.shape.exact)),
            flops=int(plan.flops),
            bytes=int(plan.algorithmic_bytes),
            inputs=tensors.summarize(plan.inputs),
        )

    def _drawn(self, module: Any, plan_fn: Callable[..., Any], seed: int) -> list[Any]:
        """What the file's own `get_inputs` gives."""
        if not callable(getattr(module, "get_inputs", None)):
            hint = "Define get_inputs() there, or give inputs=[…] to autotune."
            raise ContractError(f"{self.path} has no get_inputs, and no inputs were given", hint=hint)
        seed_everything(seed)
        values = check_inputs(module.get_inputs())
        if self.device != "emulator":
            return values
        return fit(values, EMULATED_ELEMENTS, lambda fewer: _refusal(plan_fn, fewer)).values


def _read(value: Value) -> Any:
    if isinstance(value, Scalar):
        return tensors.read_scalar(value)
    return tensors.read_tensor(value, "cuda", zone_bytes=0)  # what lies beside it is not checked


def _refusal(plan_fn: Callable[..., Any], values: Sequence[Any]) -> str:
    """Why there is no plan for these inputs; empty when there is."""
    try:
        KernelPlan.for_inputs(plan_fn, values)
    except Exception as error:  # noqa: BLE001 - whatever it is, the plan refuses them
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""

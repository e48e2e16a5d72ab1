"""A kernel and its inputs in one confined process, for tools that watch a whole process: sanitizers and profilers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined,unused-ignore]
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from cutesmith.judge.candidate_side.kernel_file import load_kernel, start_device
from cutesmith.judge.candidate_side.requests import Profile
from cutesmith.judge.reference_side.problem_calls import load_problem
from cutesmith.problems import contract
from cutesmith.sandbox.confinement import confine

CALLS = 3


def load_confined(path: Path, problem: Path, *, confined: bool = False) -> tuple[list[Any], Callable[..., Any]]:
    """The inputs of `problem` and `kernel_fn` of `path`; afterwards this process is confined for good.

    It is so before the kernel's file is run for anything, its own `get_inputs` included, and before the problem is with
    `confined`.
    """
    early = confined or problem == path
    contract.hold(path)
    contract.hold(problem)
    if early:
        confine()
    inputs = load_problem(problem).get_inputs()
    if not early:
        confine()
    return inputs, load_kernel(path)


class DeviceTime:
    """The handler of `Profile`: the child of `device_time`."""

    def handle(self, request: Profile) -> tuple[tuple[str, float], ...]:
        """What ran on the device in some calls of the kernel."""
        start_device("cuda")
        with profile(activities=[ProfilerActivity.CUDA]):  # its libraries are loaded before files are out of reach
            torch.zeros(1, device="cuda")
        inputs, kernel = load_confined(Path(request.path), Path(request.problem), confined=request.confined)
        kernel(*inputs)  # compiles
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(CALLS):
                kernel(*inputs)
            torch.cuda.synchronize()
        return tuple(on_device(seen.events() or ()))


def on_device(events: Iterable[FunctionEvent]) -> list[tuple[str, float]]:
    """Name and microseconds of what ran on the device."""
    ran = [event for event in events if event.device_type == DeviceType.CUDA]
    return [(event.name, event.time_range.end - event.time_range.start) for event in ran]

"""The child of `device_time`: calls a candidate under PyTorch's profiler and tells what ran on the device."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined,unused-ignore]
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from cutesmith.judge.candidate_side.candidate import start_device
from cutesmith.judge.candidate_side.requests import Profile
from cutesmith.judge.one_process import load_confined

CALLS = 3


class DeviceTime:
    """The handler of `Profile`."""

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

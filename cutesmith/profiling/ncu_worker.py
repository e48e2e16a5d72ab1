"""The process that ncu watches, in the candidate's folder: `ncu … python -m cutesmith.profiling.ncu_worker`.

It has no pipe to the parent, since ncu stands between them: inputs come as files, and each step is told as a line of
STATUS (`Progress`). What the candidate writes there concerns its own verdict only; it cannot reach ncu's measurements.
Profiled is what runs between cudaProfilerStart and cudaProfilerStop: one trusted kernel, so that ncu has opened all
that it needs before this process is confined, and so that a machine where nothing can be profiled shows; then the
second call of `kernel_fn`.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cutesmith.judge.candidate_side.kernel_file import candidate_code, load_kernel, start_device, synchronize
from cutesmith.judge.candidate_side.outputs import take_outputs
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.requests import Scalar
from cutesmith.problems import contract
from cutesmith.profiling.ncu_run import STATUS
from cutesmith.profiling.requests import ProfileFile, Progress
from cutesmith.sandbox.child import describe
from cutesmith.sandbox.confinement import confine, limit_resources
from cutesmith.sandbox.messages import decode, encode
from cutesmith.sandbox.readable import INPUTS

_SPIN_CYCLES = 10_000


class Status:
    """What has happened so far, appended to a file in the current folder."""

    def __init__(self) -> None:
        self._file = open(STATUS, "a", encoding="utf-8")  # noqa: SIM115 - open until the process ends
        self._progress = Progress()

    def tell(self, **changes: Any) -> None:
        """Write a line with these fields of `Progress` changed."""
        self._progress = replace(self._progress, **changes)
        self._file.write(json.dumps(encode(self._progress, Progress)) + "\n")
        self._file.flush()


class ProfilerSwitch:
    """cudaProfilerStart and cudaProfilerStop, looked up before any candidate is loaded; nothing without a GPU."""

    def __init__(self, device: str) -> None:
        runtime = torch.cuda.cudart() if device == "cuda" else None  # type: ignore[no-untyped-call,unused-ignore]
        self._start: Callable[[], Any] = runtime.cudaProfilerStart if runtime else lambda: None
        self._stop: Callable[[], Any] = runtime.cudaProfilerStop if runtime else lambda: None
        self._device = device

    def profiled(self, function: Callable[..., Any], arguments: list[Any]) -> Any:
        """Call the function with the profiler on."""
        self._start()
        try:
            result = function(*arguments)
            synchronize(self._device)
        finally:
            self._stop()
        return result


def profile(request: ProfileFile, status: Status) -> None:
    """Profile one kernel file. Raises what the candidate raises as CandidateError."""
    device, path = request.device, request.path
    start_device(device)
    switch = ProfilerSwitch(device)
    if device == "cuda":
        switch.profiled(torch.cuda._sleep, [_SPIN_CYCLES])  # its kernel is ncu_run.TRUSTED_KERNEL
    contract.hold(path)
    layers = confine(readable=[Path.cwd().parent / INPUTS], keep_capabilities=True)
    # Only now: who wrote these files may be the kernel's author, and a link could lead anywhere.
    values = [
        tensors.read_scalar(value) if isinstance(value, Scalar) else tensors.read_tensor(value, device)
        for value in request.inputs
    ]
    status.tell(confinement=layers, stage="loading the file")
    with candidate_code(path):
        kernel_fn = load_kernel(path)
        contract.check_arity(kernel_fn, "kernel_fn", values)
        status.tell(stage="the first call of kernel_fn")
        kernel_fn(*values)
        synchronize(device)
        status.tell(stage="the profiled call of kernel_fn")
        outputs, _ = take_outputs(switch.profiled(kernel_fn, values))
        status.tell(stage="", output_bytes=sum(output.numel() * output.element_size() for output in outputs))


def main() -> int:
    """Limit this process, profile, and tell how it ended; the parent reads the status, not the exit code."""
    request = decode(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), ProfileFile)
    status = Status()
    status.tell(stage="starting")
    limit_resources(file_bytes=request.file_bytes, memory_bytes=None)
    # This ends the process also when the parent that watches the clock was killed.
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_seconds, request.cpu_seconds))
    sys.argv = ["python"]
    try:
        profile(request, status)
    except BaseException as error:  # noqa: BLE001 - a candidate raises what it likes
        status.tell(error=describe(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The bar that kernels are held against, without a kernel: what is timed, and what is only told."""

from __future__ import annotations

import json

import pytest

from cutesmith.devices import current_device
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.timing.contest import BenchmarkOptions
from cutesmith.timing.requests import Machine, MachineRates, Round
from cutesmith.timing.timed import TimedBaselines
from evals.studies.bench_baselines import Bar, failures, main, told
from tests.judge.in_process import LocalWorker

PROBLEM = """
import torch

def reference_fn(x):
    return torch.relu(x) * 2

def get_inputs():
    return [torch.randn(64, 32, device="cuda")]
"""
LIBRARY = """
import torch

def right(x):
    return torch.relu(2 * x)

def wrong(x):
    return x * 2
"""
without_gpu = pytest.mark.skipif(current_device() is not None, reason="stands in for the GPU that is there")


class StandIn(TimedBaselines):
    """On tensors that pose as CUDA's the clock stands still, and no machine can be measured."""

    def handle(self, request):
        if isinstance(request, Machine):
            return MachineRates(4e12, None, {})
        reply = super().handle(request)
        return tuple(2.0 + took for took in reply) if isinstance(request, Round) else reply


@without_gpu
def test_baselines_are_timed_without_a_kernel_and_a_wrong_one_is_told(tmp_path):
    problem, library = tmp_path / "problem.py", tmp_path / "library.py"
    problem.write_text(PROBLEM)
    library.write_text(LIBRARY)
    names = [f"{library}:right", f"{library}:wrong"]
    bar = Bar(problem=problem, options=BenchmarkOptions(compiled=False, rounds=2, baselines=tuple(names)))
    bar.device = "a stand-in"
    with cuda_as_cpu(arch="sm_86"):  # its L2 cache, which is flushed before each launch, is the smallest
        line = {"task": "t", "error": "", **bar.timed(tmp_path / "exchange", LocalWorker(StandIn()))}
    timed = {timing["name"]: timing for timing in line["timings"]}
    assert list(timed) == ["eager", *names]
    assert all(len(timed[name]["samples_us"]) >= 6 and timed[name]["warm_up_s"] > 0 for name in ("eager", names[0]))
    assert not timed[names[1]]["samples_us"] and timed[names[1]]["error"].startswith("no baseline: output 0: ")
    assert failures(line) == [f"{names[1]}: {timed[names[1]]['error']}"] and failures(line)[0] in told(line)
    assert line["floor_us"] > 0 and line["floor_kind"] == "bytes" and json.dumps(line)


@without_gpu
def test_without_a_gpu_each_task_says_so_and_other_lines_stay(tmp_path, capsys):
    out = tmp_path / "lines.jsonl"
    out.write_text('{"task": "level1/softmax", "error": ""}\n{"cut": \n')
    assert main(["--out", str(out), "--only", "level1/relu", "--jobs", "1"]) == 1
    found = {line["task"]: line["error"] for line in map(json.loads, out.read_text().splitlines())}
    assert found["level1/softmax"] == "" and "no NVIDIA GPU" in found["level1/relu"]
    assert "with a baseline that failed: 1 level1/relu" in capsys.readouterr().out

"""The Hopper GEMM and torch's, launched back to back for a second each, in turns: the card runs into its power limit.

    python evals/results/h200/own_kernels/sustained.py > sustained.json

8192 x 16384 x 4096 in bf16, bias and tanh-GELU, random normal data: microseconds a launch of each batch, by contestant.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import torch

KERNEL = Path(__file__).resolve().parents[4] / "examples_index" / "kernels" / "gemm_sm90_bias_gelu.py"
LAUNCHES, BATCHES = 600, 3


def load():
    """The kernel file as a module."""
    spec = importlib.util.spec_from_file_location("gemm", KERNEL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def microseconds(function, inputs) -> float:
    """Time of one launch out of many."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(LAUNCHES):
        function(*inputs)
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / LAUNCHES


def main() -> None:
    gemm = load()
    inputs = gemm.get_inputs()
    contestants = {"gemm_sm90_bias_gelu": gemm.kernel_fn, "F.linear alone": torch.nn.functional.linear}
    for function in contestants.values():
        function(*inputs)
    times = {name: [] for name in contestants}
    for _ in range(BATCHES):
        for name, function in contestants.items():
            times[name].append(round(microseconds(function, inputs), 1))
    print(json.dumps(times))


if __name__ == "__main__":
    main()

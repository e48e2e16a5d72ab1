#!/usr/bin/env python3
"""How fast the emulated GPU is, on one core: lane-instructions a second, seconds a kernel, memory.

    python evals/studies/bench_emulator.py --out evals/results/emulator/speed      all points, table and JSON
    python evals/studies/bench_emulator.py --only 'softmax*' --no-sanitizer

Each point runs in a process of its own on one core; its first call compiles (DSL, then machine code), the median of the
others is the kernel's time. CPU seconds are those of a whole call, with the copies of memory that the sanitizer keeps.
Goals: 50 million lane-instructions a second on elementwise and reductions, softmax 512x4096 in 2 s, an Ampere GEMM of
256 cubed in 5 s, TMA copies of 200 MB a second, 2 GB.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
import warnings
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent / "emulator"))

TASKS = {
    "relu 512x4096": ("level1/relu", [(512, 4096)]),
    "gelu 512x4096": ("level1/gelu_tanh", [(512, 4096)]),
    "softmax 512x4096": ("level1/softmax", [(512, 4096)]),
    "layernorm 512x4096": ("level2/layer_norm", [(512, 4096), (4096,), (4096,)]),
    "sum 512x4096": ("level1/sum", [(512, 4096)]),
}
GEMM = {"gemm 256x256x256": (256, 256, 256)}
WGMMA = {"wgmma 256x256x256": 256, "wgmma 1024x1024x1024": 1024}
WGMMA_KERNEL = Path(__file__).resolve().parents[2] / "tests" / "kernels" / "gemm_wgmma.py"
"""Its operands are copied by threads: goals are 3 s, and 30 s without the sanitizer."""
TMA = {"TMA copy 32 MB": (16384, 512)}
ATTENTION = {"Hopper attention 512x512x64": (1, 1, 512, 64)}
"""Batch, heads, queries and keys, columns; its goal is 10 s."""
ATTENTION_KERNEL = Path(__file__).resolve().parents[2] / "examples_index" / "kernels" / "flash_attention_sm90.py"
CALLS = 3


def main() -> int:
    """Run the points, print the table, write it."""
    options = parse()
    rows = {}
    for name in [*TASKS, *GEMM, *WGMMA, *ATTENTION, *TMA]:
        if fnmatch(name, options.only):
            rows[name] = in_process(name, options)
            print(line(name, rows[name]), flush=True)
    if options.out:
        write(options.out, rows)
    return int(any("error" in row for row in rows.values()))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="GLOB")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write speed.json and speed.md there")
    parser.add_argument("--no-sanitizer", action="store_true", help="bounds and alignment only")
    return parser.parse_args()


def in_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One point in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(guarded, (name, not options.no_sanitizer))


def guarded(name: str, sanitize: bool) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return measure(name, sanitize)
    except Exception as error:  # the other points go on
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def measure(name: str, sanitize: bool) -> dict[str, Any]:
    """Seconds of the calls and of the launches within them, instructions, and the process's largest memory."""
    import torch

    from cutesmith.emulator.device import emulated_device
    from cutesmith.emulator.machine.settings import Settings

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    values, function = point(name)
    calls = []
    with emulated_device("sm_90a", settings=Settings(sanitize=sanitize)) as device:
        kernel, inputs = function(), [value.cuda() for value in values]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(CALLS + 1):
            started, used, seen = time.perf_counter(), time.process_time(), len(device.launches)
            kernel(*inputs)
            calls.append((time.perf_counter() - started, time.process_time() - used, device.launches[seen:]))
    launches = calls[-1][2]
    seconds = statistics.median(sum(launch.seconds for launch in made) for *_, made in calls[1:])
    instructions = sum(launch.instructions for launch in launches)
    return {
        "first_call_s": calls[0][0],
        "call_s": statistics.median(seconds for seconds, *_ in calls[1:]),
        "call_cpu_s": statistics.median(used for _, used, _ in calls[1:]),
        "launch_s": seconds,
        "lane_instructions": instructions,
        "instructions_per_second": instructions / seconds,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "memory_of_libraries_mb": before / 1024,
        "findings": len(device.findings),
        "sanitize": sanitize,
    }


def point(name: str) -> tuple[list[Any], Any]:
    """CPU inputs of a point, and what makes its function."""
    import torch
    from kernel_cases import EVALS, Task, gemm_inputs, multiply

    torch.manual_seed(0)
    if name in GEMM:
        return gemm_inputs(torch.bfloat16, False, GEMM[name]), lambda: multiply
    from cutesmith.problems.loading import load_file

    if name in ATTENTION:
        inputs = [torch.randn(ATTENTION[name]).bfloat16() for _ in range(3)]
        return inputs, lambda: partial(load_file(ATTENTION_KERNEL).kernel_fn, causal=False)
    if name in WGMMA:
        size = WGMMA[name]
        inputs = [torch.randn(size, size).bfloat16() for _ in range(2)]
        return inputs, lambda: load_file(WGMMA_KERNEL).kernel_fn
    if name in TMA:
        import tma_copy

        return [torch.randn(TMA[name])], lambda: tma_copy.copy
    task, shapes = TASKS[name]
    prepared = Task(EVALS / "tasks" / f"{task}.py")
    dtypes = [value.dtype for value in prepared.inputs() if isinstance(value, torch.Tensor)]
    return [torch.randn(shape).to(dtype) for shape, dtype in zip(shapes, dtypes)], prepared.function


def line(name: str, row: dict[str, Any]) -> str:
    """One row of the table."""
    if "error" in row:
        return f"| {name} | {row['error']} | | | | | |"
    cells = [name, f"{row['launch_s']:.3f}", f"{row['call_cpu_s']:.3f}", f"{row['lane_instructions'] / 1e6:.1f}"]
    cells += [f"{row['instructions_per_second'] / 1e6:.0f}", f"{row['first_call_s']:.2f}", f"{row['memory_mb']:.0f}"]
    return "| " + " | ".join(cells) + " |"


def write(out: Path, rows: dict[str, dict[str, Any]]) -> None:
    """speed.json and speed.md."""
    out.mkdir(parents=True, exist_ok=True)
    head = (
        "| point | s a launch | CPU s a call | M lane-instructions | M a second | first call, s | largest memory, MB |"
    )
    load = f"{os.getloadavg()[1]:.1f} processes wanted one of {os.cpu_count()} cores: only CPU seconds can be compared"
    lines = ["# The emulated GPU, one core", "", f"{cpu_name()}; {load}", "", head, "|" + "---|" * 7]
    lines += [line(name, row) for name, row in rows.items()]
    (out / "speed.md").write_text("\n".join(lines) + "\n")
    (out / "speed.json").write_text(json.dumps({"cpu": cpu_name(), "points": rows}, indent=1) + "\n")


def cpu_name() -> str:
    """The processor and Python."""
    with open("/proc/cpuinfo") as lines:
        model = next((text.split(":")[1].strip() for text in lines if text.startswith("model name")), "")
    return f"{model or platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    raise SystemExit(main())

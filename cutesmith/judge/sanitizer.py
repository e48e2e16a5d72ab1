"""compute-sanitizer over a candidate: memcheck and racecheck of its first input set, where the tool is installed."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.scratch import scratch_folder
from cutesmith.sandbox.watched_program import run_watched
from cutesmith.sandbox.worker import GIB, Limits
from cutesmith.verdicts import CaseOutcome, CaseReport, FaultKind, Mechanism, Rule, Violation

TOOLS: dict[str, tuple[str, ...]] = {
    # Importing the DSL asks the driver for functions that it lacks; allocations of a multiple of 512 bytes touch.
    "memcheck": ("--report-api-errors", "no", "--padding", "512"),
    "racecheck": (),
}
# With caching a tensor's neighbours in PyTorch's pool hide what is past it:
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
LOCATIONS = ("/usr/local/cuda/bin/compute-sanitizer", "/opt/cuda/bin/compute-sanitizer")
MOST_MEMORY = 48 * GIB  # of the tool and the kernel
FOUND = 71  # the exit code that we ask for when errors are found
_RUN = """\
import sys
from pathlib import Path
import torch
from cutesmith.sandbox.confinement import limit_resources
from cutesmith.judge.candidate_side.kernel_file import start_device
from cutesmith.judge.one_process import load_confined
limit_resources(file_bytes=1 << 30, memory_bytes=None)
start_device("cuda")
inputs, kernel_fn = load_confined(*map(Path, sys.argv[1:3]), confined=sys.argv[3] == "confined")
kernel_fn(*inputs)
torch.cuda.synchronize()
"""


def find_sanitizer() -> str | None:
    """The path of compute-sanitizer, None where it is not installed."""
    return shutil.which("compute-sanitizer") or next((path for path in LOCATIONS if os.access(path, os.X_OK)), None)


def check(path: Path, problem: Path, *, timeout: float, confined: bool = False) -> Iterator[CaseReport]:
    """One case a tool; a case without the tool passes and says that nothing was checked.

    `confined`: the problem is, though it has a file of its own.
    """
    program, trust = find_sanitizer(), "confined" if confined else "trusted"
    for tool in TOOLS:
        case = CaseReport(name=f"compute-sanitizer {tool}", inputs="get_inputs()")
        if program is None:
            yield replace(case, inputs="", outcome=CaseOutcome.NOT_RUN, remark="it is not installed")
        else:
            arguments = [str(path.resolve()), str(problem.resolve()), trust]
            yield _checked(case, program, tool, arguments, timeout)


def _checked(case: CaseReport, program: str, tool: str, arguments: Sequence[str], timeout: float) -> CaseReport:
    """What the tool found of the case."""
    with scratch_folder() as scratch:
        command = [program, "--tool", tool, *TOOLS[tool], "--error-exitcode", str(FOUND), "--print-limit", "5"]
        command += ["--target-processes", "application-only", sys.executable, "-c", _RUN, *arguments]
        limits = Limits(call_seconds=timeout, memory_bytes=fair_memory(MOST_MEMORY))
        finished = run_watched(command, cwd=scratch, limits=limits, environment=NO_CACHING)
    if finished.stopped:
        return replace(case, outcome=CaseOutcome.NOT_RUN, remark=f"it {finished.stopped}")
    if finished.code == FOUND:
        lines = [line.lstrip("= ") for line in finished.output.splitlines() if line.startswith("=")]
        said = next((line for line in lines if re.search(r"Invalid|Race|hazard|Error|error", line)), "errors")
        fault = FaultKind.RACE if tool == "racecheck" else FaultKind.OUT_OF_BOUNDS
        fault = FaultKind.MISALIGNED if "misaligned" in finished.output else fault
        return case.violated(Violation(Rule.O8, Mechanism.COMPUTE_SANITIZER, said[:300], reject=False, fault=fault))
    if finished.code:
        text = f"it ended with {finished.code}: {finished.output.strip()[-300:]}"
        return replace(case, outcome=CaseOutcome.NOT_RUN, remark=text)
    return case

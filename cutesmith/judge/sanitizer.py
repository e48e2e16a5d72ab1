"""compute-sanitizer over a candidate: memcheck and racecheck of its first input set, where the tool is installed."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cutesmith.judge.rounds import NOT_RUN
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.scratch import scratch_folder
from cutesmith.sandbox.watched_program import run_watched
from cutesmith.sandbox.worker import GIB, Limits
from cutesmith.verdicts import CaseReport

TOOLS: dict[str, tuple[str, ...]] = {
    "memcheck": (
        *("--report-api-errors", "no"),  # importing the DSL asks the driver for functions that it lacks
        *("--padding", "512"),  # bytes past each allocation: those of a multiple of 512 bytes touch one another
    ),
    "racecheck": (),
}
NO_CACHING = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"
}  # else a tensor's neighbours in PyTorch's pool hide what is past it
LOCATIONS = ("/usr/local/cuda/bin/compute-sanitizer", "/opt/cuda/bin/compute-sanitizer")
MOST_MEMORY = 48 * GIB  # of the tool and the kernel
FOUND = 71  # the exit code that we ask for when errors are found
_RUN = """\
import sys
from pathlib import Path
import torch
from cutesmith.sandbox.confinement import limit_resources
from cutesmith.judge.candidate_side.candidate import start_device
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
    program, trust = find_sanitizer(), "confined" if confined else "vouched"
    for tool in TOOLS:
        case = CaseReport(name=f"compute-sanitizer {tool}", inputs="get_inputs()", passed=True)
        if program is None:
            yield CaseReport(name=case.name, inputs="", passed=True, problem=f"{NOT_RUN}it is not installed")
            continue
        problem_text = _run_tool(program, tool, [str(path.resolve()), str(problem.resolve()), trust], timeout)
        passed = not problem_text or problem_text.startswith(NOT_RUN)
        yield CaseReport(
            name=case.name, inputs=case.inputs, passed=passed, problem=problem_text, rule="" if passed else "O8"
        )


def _run_tool(program: str, tool: str, arguments: Sequence[str], timeout: float) -> str:
    """What the tool found: empty for nothing, "not run: …" when it could not look."""
    with scratch_folder() as scratch:
        command = [
            program,
            "--tool",
            tool,
            *TOOLS[tool],
            "--error-exitcode",
            str(FOUND),
            "--print-limit",
            "5",
            "--target-processes",
        ]
        command += ["application-only", sys.executable, "-c", _RUN, *arguments]
        limits = Limits(wall_seconds=timeout, memory_bytes=fair_memory(MOST_MEMORY))
        finished = run_watched(command, cwd=scratch, limits=limits, environment=NO_CACHING)
    if finished.stopped:
        return f"{NOT_RUN}it {finished.stopped}"
    return _reading(finished.code, finished.output)


def _reading(code: int, output: str) -> str:
    if code == FOUND:
        lines = [line.lstrip("= ") for line in output.splitlines() if line.startswith("=")]
        said = next((line for line in lines if re.search(r"Invalid|Race|hazard|Error|error", line)), "errors")
        return f"sanitizer: {said[:300]}"
    return "" if code == 0 else f"{NOT_RUN}it ended with {code}: {output.strip()[-300:]}"

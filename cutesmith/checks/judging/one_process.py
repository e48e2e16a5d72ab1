"""A kernel and its inputs in one confined process, for tools that watch a whole process: sanitizers and profilers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutesmith import contract
from cutesmith.checks.isolation.confinement import confine
from cutesmith.checks.judging.candidate_side.candidate import load_kernel
from cutesmith.checks.judging.reference_side.problem_calls import load_problem


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

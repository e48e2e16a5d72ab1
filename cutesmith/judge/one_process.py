"""A kernel and its inputs in one confined process, for tools that watch a whole process: sanitizers and profilers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cutesmith.judge.candidate_side.candidate import load_kernel
from cutesmith.judge.reference_side.problem_calls import load_problem
from cutesmith.problems import contract
from cutesmith.sandbox.confinement import confine


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

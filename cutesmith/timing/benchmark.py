"""The two ways to time: one kernel beside its baselines, or several candidates of one problem in a race."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.judge.problem_process import untrusted
from cutesmith.judge.reference_side.requests import Tolerances
from cutesmith.problems.contract import problem_of
from cutesmith.timing.contest import QUICK_ROUNDS, ROUNDS, BenchmarkOptions, Contest
from cutesmith.timing.race import Race
from cutesmith.verdicts import BenchmarkVerdict, Timing

__all__ = ["QUICK_ROUNDS", "ROUNDS", "benchmark_kernel", "time_candidates"]


def benchmark_kernel(
    path: str | Path,
    *,
    problem: str | Path | None = None,
    baselines: Sequence[str] = (),
    rounds: int = ROUNDS,
    eager: bool = True,
    compiled: bool = True,
    timeout: float = 300.0,
    arch: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    confine_problem: bool = False,
) -> BenchmarkVerdict:
    """Time a kernel file on `get_inputs()`, interleaved with eager PyTorch, torch.compile and `file.py:function`s.

    Times are device microseconds with a cold L2 cache; `rounds` rounds of 3 to 20 launches each. A problem in the
    kernel's own file is confined as the kernel is, any other only with `confine_problem`. What the candidate does wrong
    ends in a verdict; so does a machine with no GPU (exit 7).
    """
    options = BenchmarkOptions(
        baselines=tuple(baselines),
        eager=eager,
        compiled=compiled,
        rounds=rounds,
        timeout=timeout,
        arch=arch,
        tolerances=Tolerances(rtol=rtol, atol=atol),
    )
    path = Path(path)
    begin = time.monotonic()
    problem = problem_of(path, problem)
    contest = Contest(problem=problem, options=options, why=untrusted(path, problem, asked=confine_problem))
    return replace(contest.verdict(path), seconds=round(time.monotonic() - begin, 3))


def time_candidates(
    paths: Sequence[str | Path],
    problem: str | Path,
    *,
    rounds: int = QUICK_ROUNDS,
    timeout: float = 120.0,
    arch: str | None = None,
    confine_problem: bool = False,
) -> list[Timing]:
    """Time several kernel files of one problem, interleaved on the same inputs; a Timing each, in their order.

    One that fails has `error` set and no samples; nothing is judged here. Raises UnavailableError without a GPU and
    ContractError when the problem cannot be used.
    """
    options = BenchmarkOptions(eager=False, compiled=False, rounds=rounds, timeout=timeout, arch=arch)
    files = [Path(path) for path in paths]
    found = [untrusted(file, problem_of(file, problem), asked=confine_problem) for file in files]
    why = next((why for why in found if why is not None), None)
    return Race(problem=Path(problem), options=options, why=why).race(files)

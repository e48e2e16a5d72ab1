"""torch.compile as a baseline of `bench_patterns.py`: its kernels are compiled ahead, in several processes.

Each process compiles the function of one case and calls it once on the GPU, which fills Inductor's caches on disk. What
Triton's configurations took beside other processes is thrown away, so that the race's own process, alone on the GPU,
chooses among them again.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from races import Function, made

if TYPE_CHECKING:
    from pattern_cases import Case

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # each case has a process of its own
LONGEST = 75
"""Seconds after which a case's compilation is given up; the race's process then compiles it itself."""


def compiled(case: Case) -> Function:
    """The case's function by torch.compile, in the mode that the case names."""
    torch._dynamo.reset()
    return torch.compile(case.function, mode=case.compiled)


def inputs_of(case: Case) -> list[Any]:
    """What the case is called with, on the GPU."""
    return list(case.problem.get_inputs()) if case.problem else made(case.arguments, "cuda")


def _call_once(case: Case) -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        compiled(case)(*inputs_of(case))
    torch.cuda.synchronize()


def compile_baselines(cases: Sequence[Case], jobs: int, folder: Path) -> dict[str, int | None]:
    """Fill caches of Inductor in `folder`, which this process and those that it forks use from now on.

    Gives the exit code of each case that failed by its name, None where its time was over. Modes that tune on the GPU
    are left to the race's process.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    waiting = deque(case for case in cases if case.compiled == "default")
    running: dict[Any, tuple[str, float]] = {}
    failed: dict[str, int | None] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.popleft()
            process = multiprocessing.get_context("fork").Process(target=_call_once, args=(case,))
            process.start()
            running[process] = case.name, time.monotonic() + LONGEST
        for process, name, is_over in _ended(running):
            process.kill()
            process.join()
            del running[process]
            if is_over or process.exitcode:
                failed[name] = None if is_over else process.exitcode
        time.sleep(0.05)
    _forget_choices(folder)
    return failed


def _ended(running: dict[Any, tuple[str, float]]) -> Iterator[tuple[Any, str, bool]]:
    for process, (name, until) in list(running.items()):
        if not process.is_alive():
            yield process, name, False
        elif time.monotonic() > until:
            yield process, name, True


def _forget_choices(folder: Path) -> None:
    """Remove which configurations were the fastest while several processes shared the GPU."""
    for kept in folder.rglob("*.best_config"):
        kept.unlink()

"""Attempts for tests of scores and reports: what a judge might have written, in few words."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutesmith.evals.reading import PlannedTask, RunFacts
from cutesmith.evals.records import KERNEL, Attempt, Machine, Timing
from cutesmith.evals.scores.outcomes import Outcome, Run, run_of

H200 = Machine(device="NVIDIA H200", driver="580.159.04", dsl="4.8.1", torch="2.11.0", cutesmith="0.1.0")


def attempt(task: str, speedup: float | Mapping[str, float] | None = None, **fields: Any) -> Attempt:
    """A correct kernel of 100 us with baselines such that it has these speed-ups; none for an untimed one."""
    speedups = {"eager": speedup} if isinstance(speedup, (int, float)) else speedup or {}
    timings = {name: Timing(samples_us=(100.0 * factor,) * 3) for name, factor in speedups.items()}
    if speedups:
        timings[KERNEL] = Timing(samples_us=(100.0,) * 3)
    known = {"key": f"{task}/{fields.get('sample', 0)}", "suite": "s", "source": "draft", "stage": "benchmark"}
    known |= {"exit_code": 0, "status": "passed", "correct": True, "ran_on": "gpu", "machine": H200, "timings": timings}
    return Attempt(**{**known, "task": task, **fields})


def wrong(task: str, **fields: Any) -> Attempt:
    """A kernel whose result is wrong."""
    known = {"stage": "verify", "exit_code": 1, "status": "wrong_result", "correct": False}
    return attempt(task, **{**known, **fields})


def unjudged(task: str, **fields: Any) -> Attempt:
    """A kernel that no machine could judge."""
    return wrong(task, **{"exit_code": 7, "status": "unavailable", **fields})


def noisy(task: str, speedup: float, seed: int, count: int = 40, spread: float = 0.02, **fields: Any) -> Attempt:
    """A correct kernel with samples that scatter."""
    draws = random.Random(seed)
    times = {KERNEL: 100.0, "eager": 100.0 * speedup}
    timings = {
        name: Timing(samples_us=tuple(mean * draws.gauss(1.0, spread) for _ in range(count)))
        for name, mean in times.items()
    }
    return attempt(task, timings=timings, **fields)


def run(attempts: Iterable[Attempt], planned: Iterable[str | PlannedTask] = (), name: str = "run", **facts: Any) -> Run:
    """A run of these, whose run.json names the planned tasks."""
    tasks = tuple(task if isinstance(task, PlannedTask) else PlannedTask(id=task) for task in planned)
    return run_of(map(Outcome.of, attempts), RunFacts(tasks=tasks, **facts), name=name)


def write_run(folder: Path, attempts: Iterable[Attempt], **about: Any) -> Path:
    """The folder of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(attempt.model_dump_json(exclude_defaults=True) + "\n" for attempt in attempts)
    (folder / "results.jsonl").write_text(lines, encoding="utf-8")
    if about:
        (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    return folder

"""The runs of a trial, one after the other: what is done is left alone, and no dollar above the limit is begun."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cutesmith.evals.engines.jobs import Engine
from cutesmith.evals.reading import RESULTS, read_attempts
from cutesmith.evals.running.cache import Cache
from cutesmith.evals.running.plan import Plan
from cutesmith.evals.running.running import run_plan
from cutesmith.evals.running.screen import Screen
from cutesmith.evals.skill_trials.trial import Arm, Step, Trial, is_complete, run_folder

Prepare = Callable[[Sequence[str]], tuple[Plan, Callable[[], Engine], list[str]]]
"""From a command line of `eval run` to its plan, how to get an engine, and the line as run.json keeps it."""


@dataclass
class Progress:
    """What became of a trial's runs; `open` are attempts that could not be judged, by run and unit, with the reason."""

    done: int = 0
    total: int = 0
    out_of_dollars: bool = False
    interrupted: bool = False
    open: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every run is whole."""
        return self.done == self.total


def run_trial(
    trial: Trial,
    arms: Sequence[Arm],
    out: Path,
    prepare: Prepare,
    screen: Callable[[Plan], Screen],
    *,
    tasks: int,
    most_dollars: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Progress:
    """Make every run that is not whole, in the trial's order; Ctrl-C ends it with what is done.

    `tasks` is how many sessions a run has; no run is begun that could pass `most_dollars` together with what was
    spent. Raises UsageError and LogWriteError as `run_plan` does.
    """
    by_name, steps = {arm.name: arm for arm in arms}, trial.steps()
    progress = Progress(total=len(steps))
    for number, step in enumerate(steps, start=1):
        folder = run_folder(out, step)
        if is_complete(folder):
            progress.done += 1
            continue
        if not _affordable(trial, out, tasks - _done(folder), most_dollars):
            progress.out_of_dollars = True
            break
        say(f"run {number} of {len(steps)}: {step.arm}, repeat {step.repeat + 1}")
        if _run(trial, by_name[step.arm], step, out, prepare, screen, progress):
            break
    return progress


def _run(
    trial: Trial,
    arm: Arm,
    step: Step,
    out: Path,
    prepare: Prepare,
    screen: Callable[[Plan], Screen],
    progress: Progress,
) -> bool:
    """Make one run; whether it was interrupted."""
    plan, make_engine, command = prepare(trial.command(step, arm, out))
    folder, engine = run_folder(out, step), make_engine()
    with contextlib.closing(engine):  # also where the folder is refused: a cluster must not stay connected
        verdict = run_plan(plan, folder, engine, Cache(None), screen(plan), resume=True, command=command)
    progress.done += verdict.passed
    progress.open.update({f"{step.arm}/{step.repeat} {unit}": why for unit, why in verdict.open.items()})
    progress.interrupted = verdict.interrupted
    return verdict.interrupted


def _affordable(trial: Trial, out: Path, sessions: int, most: float | None) -> bool:
    if most is None or trial.cap is None:
        return True
    return spent_dollars(trial, out) + sessions * trial.cap <= most * (1 + 1e-9)


def _done(folder: Path) -> int:
    return sum(1 for _ in read_attempts(folder)) if (folder / RESULTS).is_file() else 0


def spent_dollars(trial: Trial, out: Path) -> float:
    """What the finished sessions of a trial cost."""
    folders = [run_folder(out, step) for step in trial.steps()]
    attempts = (attempt for folder in folders if (folder / RESULTS).is_file() for attempt in read_attempts(folder))
    return sum(attempt.cost.dollars or 0.0 for attempt in attempts)

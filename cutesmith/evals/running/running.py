"""A run from its plan to its verdict: the folder described, the pipeline driven, `run.json` brought up to date."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cutesmith.errors import UsageError
from cutesmith.evals.engines.jobs import Engine
from cutesmith.evals.reading import RESULTS, PlannedTask
from cutesmith.evals.records import Task
from cutesmith.evals.running.cache import Cache
from cutesmith.evals.running.folder import SCHEMA, RunDescription, RunFolder, RunSettings, Window
from cutesmith.evals.running.outcomes import now
from cutesmith.evals.running.pipeline import Pipeline
from cutesmith.evals.running.plan import Plan
from cutesmith.evals.running.screen import Screen, one_line
from cutesmith.evals.running.summary import EvalVerdict, summarize


def run_plan(
    plan: Plan, path: Path, engine: Engine, cache: Cache, screen: Screen, *, resume: bool, command: Sequence[str]
) -> EvalVerdict:
    """Judge what is not judged yet. Ctrl-C and SIGTERM end it with what is done.

    Raises UsageError: the folder is in use, holds another run, or holds one and `resume` is False.
    LogWriteError: the disk is full; the run can be resumed.
    """
    if not resume and (path / RESULTS).exists() and (path / RESULTS).stat().st_size:
        raise UsageError(f"{path} holds a run", hint=f"Go on with --resume --out {path}, or give another --out.")
    began = time.time()
    with RunFolder(path) as folder, screen:
        known = folder.description()
        there = {task.id for task in plan.suite.tasks}
        gone = [task for task in known.tasks if task.id not in there] if known else []
        plan = replace(plan, gone=tuple(task.id for task in gone))
        about = _described(plan, command, gone)
        if known is not None:
            about = _as_begun(about, known, path)
        last = (path / RESULTS).stat().st_mtime  # a process that was killed worked until its last result
        before = tuple(Window(begin=one.begin, end=one.end or max(one.begin, last)) for one in about.windows)
        folder.describe(about.model_copy(update={"windows": (*before, Window(begin=began, end=None))}))
        pipeline = Pipeline(plan, folder, engine, cache, screen)
        for line in pipeline.take_up():
            print(f"warning: {RESULTS}, line {line.number} is not an attempt: {line.reason}", file=sys.stderr)
        pipeline.gpu_time.earlier = sum(window.end - window.begin for window in before if window.end is not None)
        with _interruptible(pipeline), contextlib.closing(engine):
            tally = pipeline.run()
        seconds = time.time() - began
        gpu = pipeline.gpu_time.summary(plan.gpus, seconds)
        verdict = summarize(folder.path, plan.suite.name, plan.source.name, tally, gpu, seconds)
        windows = (*before, Window(begin=began, end=began + seconds))
        ended = {"windows": windows, "finished": now(), "summary": verdict.to_dict()}
        folder.describe(about.model_copy(update=ended))
    return verdict


def _described(plan: Plan, command: Sequence[str], gone: Sequence[PlannedTask]) -> RunDescription:
    return RunDescription(
        schema_version=SCHEMA,
        suite=plan.suite.name,
        agent=plan.source.name,
        samples=plan.samples,
        settings=RunSettings(judge=plan.judge, maker=plan.maker, tolerance=plan.tolerance),
        machine=plan.machine,
        command=tuple(command),
        gpus=plan.gpus,
        tasks=(*map(_planned, plan.suite.tasks), *gone),
        started=now(),
    )


def _planned(task: Task) -> PlannedTask:
    libraries = tuple(library.name for library in task.libraries)
    same = {name: getattr(task, name) for name in ("level", "tags", "dtypes", "id", "sha256")}
    return PlannedTask(task=task.id, **same, libraries=libraries)


def _as_begun(about: RunDescription, known: RunDescription, path: Path) -> RunDescription:
    """With what an earlier process left; raises UsageError when that was another run, and names changed tasks."""
    if wrong := known.difference(about):
        raise UsageError(
            f"{path.absolute()} holds a run with another {wrong}",
            hint="Resume it as it was begun, or give another --out.",
        )
    before = {task.id: task.sha256 for task in known.tasks}
    changed = [task.id for task in about.tasks if before.get(task.id) and before[task.id] != task.sha256]
    if changed:
        listed = one_line(f"{', '.join(changed[:4])}{' and others' * (len(changed) > 4)}")
        print(f"warning: changed since the run began, earlier results stay: {listed}", file=sys.stderr)
    return about.model_copy(update={"started": known.started, "windows": known.windows})


@contextlib.contextmanager
def _interruptible(pipeline: Pipeline) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run between two of its steps; a second one ends it wherever it is."""

    def interrupt(number: int, frame: object) -> None:
        if pipeline.tally.interrupted:
            raise KeyboardInterrupt
        pipeline.interrupt()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""A run from its plan to its verdict: the folder described, the pipeline driven, `run.json` brought up to date."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cutesmith.errors import UsageError
from cutesmith.evals.engines.jobs import Engine
from cutesmith.evals.reading import RESULTS, DamagedLine
from cutesmith.evals.records import Task
from cutesmith.evals.running.cache import Cache
from cutesmith.evals.running.folder import RunFolder
from cutesmith.evals.running.outcomes import about_task, now
from cutesmith.evals.running.pipeline import Pipeline
from cutesmith.evals.running.plan import Plan
from cutesmith.evals.running.screen import Screen, one_line
from cutesmith.evals.running.summary import EvalVerdict, summarize

SCHEMA = 1
FIXED = ("suite", "agent", "samples", "settings")
"""What must be the same when a run is resumed: its results stand side by side."""


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
        _say_changed(plan, folder.settings())
        gone = _gone(plan, folder.settings())
        plan = replace(plan, gone=tuple(task["id"] for task in gone))
        about = _about(plan, folder, command, gone)
        windows = _ended(about.pop("windows"), path / RESULTS)
        folder.describe({**about, "windows": [*windows, {"begin": began, "end": None}]})
        pipeline = Pipeline(plan, folder, engine, cache, screen)
        _say_damage(folder)
        pipeline.take_up()
        pipeline.gpu_time.earlier = sum(window["end"] - window["begin"] for window in windows)
        with _interruptible(pipeline), contextlib.closing(engine):
            tally = pipeline.run()
        seconds = time.time() - began
        gpu = pipeline.gpu_time.summary(plan.gpus, seconds)
        verdict = summarize(folder.path, plan.suite.name, plan.source.name, tally, gpu, seconds)
        windows.append({"begin": began, "end": began + seconds})
        folder.describe({**about, "windows": windows, "finished": now(), "summary": verdict.to_dict()})
    return verdict


def _say_changed(plan: Plan, known: Mapping[str, Any]) -> None:
    """Whose file is another one now: what was judged before was judged by the earlier one."""
    before = {task["id"]: task.get("sha256") for task in known.get("tasks") or ()}
    changed = [task.id for task in plan.suite.tasks if before.get(task.id) not in (None, task.sha256)]
    if changed:
        listed = one_line(f"{', '.join(changed[:4])}{' and others' * (len(changed) > 4)}")
        print(f"warning: changed since the run began, earlier results stay: {listed}", file=sys.stderr)


def _gone(plan: Plan, known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tasks of an earlier process that the suite no longer has, as `run.json` names them."""
    there = {task.id for task in plan.suite.tasks}
    return [task for task in known.get("tasks") or () if task["id"] not in there]


def _about(plan: Plan, folder: RunFolder, command: Sequence[str], gone: list[dict[str, Any]]) -> dict[str, Any]:
    """What `run.json` says, with what an earlier process left; raises UsageError when that was another run."""
    about = {
        "schema_version": SCHEMA,
        "suite": plan.suite.name,
        "agent": plan.source.name,
        "samples": plan.samples,
        "settings": {"judge": plan.judge.to_dict(), "maker": plan.maker.to_dict(), "tolerance": plan.tolerance},
        "machine": plan.machine.model_dump(),
        "command": list(command),
        "gpus": plan.gpus,
        "tasks": [*map(_planned, plan.suite.tasks), *gone],
    }
    known = folder.settings()
    for name in FIXED:
        if known and known.get(name) != about[name]:
            wrong = f"{folder.path} holds a run with another {name}: {_difference(known.get(name), about[name])}"
            raise UsageError(wrong, hint="Resume it as it was begun, or give another --out.")
    return {**about, "started": known.get("started", now()), "windows": known.get("windows", [])}


def _planned(task: Task) -> dict[str, Any]:
    """A task as `run.json` names it, with the libraries that compute it, whether or not this run times them."""
    libraries = [library.name for library in task.libraries]
    return {**about_task(task), "id": task.id, "sha256": task.sha256, "libraries": libraries}


def _ended(windows: list[dict[str, Any]], results: Path) -> list[dict[str, Any]]:
    """From when to when processes worked on the run; one that was killed, until its last result."""
    last = results.stat().st_mtime
    return [{**window, "end": window["end"] or max(window["begin"], last)} for window in windows]


def _difference(before: Any, after: Any) -> str:
    """The first thing that differs, in words."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in after:
            if before.get(name) != after[name]:
                return f"{name}: {_difference(before.get(name), after[name])}"
    return f"{before!r:.80}, not {after!r:.80}"


def _say_damage(folder: RunFolder) -> None:
    damaged: list[DamagedLine] = []
    for _ in folder.attempts(damaged):
        pass
    for line in damaged:
        fields = asdict(line)
        print(f"warning: {RESULTS}, line {fields['number']} is no attempt: {fields['reason']}", file=sys.stderr)


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

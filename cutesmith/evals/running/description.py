"""`run.json`: what a run set out to do and, at the end, what it came to."""

from __future__ import annotations

from typing import Any

from cutesmith.evals.records import Machine, Record, Task
from cutesmith.evals.settings import JudgeSettings, MakerSettings

SCHEMA = 1
FIXED = ("suite", "agent", "samples", "settings")
"""What must be the same when a run is resumed: its results stand side by side."""


class DescribedTask(Record):
    """A task as `run.json` names it, with the libraries that compute it, whether or not the run times them."""

    task: str = ""
    level: int = 0
    tags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    id: str
    sha256: str = ""
    libraries: tuple[str, ...] | None = None

    @classmethod
    def of(cls, task: Task) -> DescribedTask:
        """The task of a suite."""
        return cls(
            task=task.id,
            level=task.level,
            tags=task.tags,
            dtypes=task.dtypes,
            id=task.id,
            sha256=task.sha256,
            libraries=tuple(library.name for library in task.libraries),
        )


class Window(Record):
    """From when to when a process worked on the run (seconds since the epoch); `end` None while it does."""

    begin: float
    end: float | None = None


class RunSettings(Record):
    """How kernels are made and judged."""

    judge: JudgeSettings
    maker: MakerSettings
    tolerance: str = ""


class RunDescription(Record):
    """All of `run.json`; `summary` is the fields of an EvalVerdict."""

    schema_version: int = SCHEMA
    suite: str
    agent: str
    samples: int
    settings: RunSettings
    machine: Machine
    command: tuple[str, ...]
    gpus: int
    tasks: tuple[DescribedTask, ...]
    started: str
    windows: tuple[Window, ...] = ()
    finished: str | None = None
    summary: Any = None

    def difference(self, other: RunDescription) -> str:
        """What differs of what may not, in words: its name, and both values; "" where nothing does."""
        before, after = (one.model_dump(mode="json", include=set(FIXED)) for one in (self, other))
        names = (name for name in FIXED if before[name] != after[name])
        return next((f"{name}: {_difference(before[name], after[name])}" for name in names), "")


def _difference(before: Any, after: Any) -> str:
    """The first thing that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in after:
            if before.get(name) != after[name]:
                return f"{name}: {_difference(before.get(name), after[name])}"
    return f"{before!r:.80}, not {after!r:.80}"

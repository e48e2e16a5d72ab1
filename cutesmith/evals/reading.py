"""A run's folder as it was found: `run.json`, and `results.jsonl` line by line, also when the last line was cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cutesmith.agent.settings import WHOLE
from cutesmith.errors import UsageError
from cutesmith.evals.records import Attempt

RESULTS, RUN = "results.jsonl", "run.json"


@dataclass(frozen=True, kw_only=True)
class DamagedLine:
    """A line of results.jsonl that is no attempt: its number from 1, and why."""

    number: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlannedTask:
    """A task that the run set out to do, as `run.json` names it; the fields are empty where it gives the id alone.

    `libraries` are the functions of libraries that compute it, None where the run does not say.
    """

    id: str
    level: int = 0
    tags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    libraries: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What `run.json` says, empty for a folder without one."""

    suite: str = ""
    agent: str = ""
    command: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[PlannedTask, ...] = ()

    @property
    def skill(self) -> str:
        """How much of the skill the run's sessions had: "whole", "bare" or "without PAGE, …"."""
        maker = self.settings.get("maker")
        maker = maker if isinstance(maker, dict) else {}
        pages = maker.get("hidden_pages")
        return f"without {', '.join(map(str, pages))}" if pages else str(maker.get("skill") or WHOLE)


def read_attempts(folder: Path, damaged: list[DamagedLine] | None = None) -> Iterator[Attempt]:
    """Every attempt of a run, in the order in which they were finished; lines that are none are left to `damaged`.

    Raises UsageError where there is no results.jsonl.
    """
    path = folder / RESULTS
    if not path.is_file():
        raise UsageError(f"{folder} holds no {RESULTS}", hint="cutesmith eval run --out DIR writes one")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield Attempt.model_validate_json(line)
            except ValidationError as error:
                if damaged is not None:
                    damaged.append(DamagedLine(number=number, reason=_reason(error)))


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def read_facts(folder: Path) -> RunFacts:
    """`run.json` of a run; raises UsageError when there is one that cannot be read."""
    path = folder / RUN
    if not path.is_file():
        return RunFacts()
    try:
        known = json.loads(path.read_bytes())
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="take it away to go without it") from error
    known = known if isinstance(known, dict) else {}
    settings, tasks, command = known.get("settings"), known.get("tasks"), known.get("command") or ""
    return RunFacts(
        suite=_suite_name(known.get("suite")),
        agent=str(known.get("agent") or ""),
        command=" ".join(map(str, command)) if isinstance(command, list) else str(command),
        settings=settings if isinstance(settings, dict) else {},
        tasks=tuple(_planned(task) for task in tasks) if isinstance(tasks, list) else (),
    )


def _suite_name(suite: Any) -> str:
    return str(suite.get("name") or "") if isinstance(suite, dict) else str(suite or "")


def _planned(task: Any) -> PlannedTask:
    if not isinstance(task, dict):
        return PlannedTask(id=str(task))
    level, libraries = task.get("level"), task.get("libraries")
    return PlannedTask(
        id=str(task.get("id") or ""),
        level=level if isinstance(level, int) else 0,
        tags=tuple(map(str, task.get("tags") or ())),
        dtypes=tuple(map(str, task.get("dtypes") or ())),
        libraries=tuple(map(str, libraries)) if isinstance(libraries, list) else None,
    )

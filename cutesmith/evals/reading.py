"""A run's folder as it was found: `run.json`, and `results.jsonl` line by line, also when the last line was cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from cutesmith.agent.settings import WHOLE
from cutesmith.errors import UsageError
from cutesmith.evals.records import Attempt, Record

RESULTS, RUN = "results.jsonl", "run.json"


@dataclass(frozen=True, kw_only=True)
class DamagedLine:
    """A line of results.jsonl that is not an attempt: its number from 1, and why."""

    number: int
    reason: str


class PlannedTask(Record):
    """A task that the run set out to do, as `run.json` names it; the fields are empty where it gives the id alone.

    `libraries` are the functions of libraries that compute it, whether or not the run times them; None where the run
    does not say.
    """

    task: str = ""  # the id, as the results call it
    level: int = 0
    tags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    id: str
    sha256: str = ""
    libraries: tuple[str, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_an_id(cls, given: object) -> object:
        return {"id": given} if isinstance(given, str) else given


class RunFacts(Record):
    """What `run.json` says, empty for a folder without one. The suite may be an object with a name."""

    suite: str = ""
    agent: str = ""
    command: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    tasks: tuple[PlannedTask, ...] = ()

    @field_validator("suite", mode="before")
    @classmethod
    def _name_of(cls, suite: object) -> object:
        return suite.get("name") or "" if isinstance(suite, dict) else suite

    @field_validator("command", mode="before")
    @classmethod
    def _line_of(cls, command: object) -> object:
        return " ".join(map(str, command)) if isinstance(command, list) else command

    @property
    def skill(self) -> str:
        """How much of the skill the run's sessions had: "whole", "bare" or "without PAGE, …"."""
        maker = self.settings.get("maker")
        maker = maker if isinstance(maker, dict) else {}
        pages = maker.get("hidden_pages")
        return f"without {', '.join(map(str, pages))}" if pages else str(maker.get("skill") or WHOLE)


def read_attempts(folder: Path, damaged: list[DamagedLine] | None = None) -> Iterator[Attempt]:
    """Every attempt of a run, in the order in which they were finished; other lines are left to `damaged`.

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
                    damaged.append(DamagedLine(number=number, reason=reason(error)))


def reason(error: ValidationError) -> str:
    """The first thing that is wrong with a record, and where."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def read_facts(folder: Path) -> RunFacts:
    """`run.json` of a run; raises UsageError when there is one that cannot be read."""
    path = folder / RUN
    if not path.is_file():
        return RunFacts()
    try:
        return RunFacts.model_validate_json(path.read_bytes())
    except (ValueError, OSError) as error:
        said = reason(error) if isinstance(error, ValidationError) else str(error)
        raise UsageError(f"{path} cannot be read: {said}", hint="take it away to go without it") from error

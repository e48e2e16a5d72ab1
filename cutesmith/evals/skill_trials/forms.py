"""The two forms in which evaluations of a skill are written down, read strictly.

`triggers.json`: a list of {"query", "should_trigger"}. `evals.json`: {"skill_name", "evals": [{"id", "prompt",
"expected_output", "files", "expectations"}]}. Both are those of the skill-creator of
https://github.com/anthropics/skills (`references/schemas.md`, `scripts/run_eval.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from cutesmith import resources
from cutesmith.errors import UsageError

TRIGGERS, EVALS = "triggers.json", "evals.json"
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)]
Form = TypeVar("Form")


class _Strict(BaseModel):
    """Frozen; a field that the form does not have is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TriggerQuery(_Strict):
    """What a user says, and whether the skill is for it."""

    query: Words
    should_trigger: bool


class SkillEval(_Strict):
    """A prompt, what comes of it in words, and statements about the result that can be checked."""

    id: int = Field(ge=1)
    prompt: Words
    expected_output: Words
    files: list[Words] = []
    expectations: list[Words] = Field(min_length=1)


class SkillEvals(_Strict):
    """All of a skill."""

    skill_name: Words
    evals: list[SkillEval] = Field(min_length=1)


def folder() -> Path:
    """Where our own forms are; raises UsageError in an installation without them."""
    path = resources.PACKAGE.parent / "evals" / "skill_trials"
    if not path.is_dir():
        raise UsageError(
            "this installation holds no trigger queries and no evaluations",
            hint="Give --queries FILE or --evals FILE, or use a checkout.",
        )
    return path


def read_triggers(path: Path) -> list[TriggerQuery]:
    """The queries of a file; raises UsageError unless they have the form, differ, and are of both kinds."""
    queries = _read(path, TypeAdapter(list[TriggerQuery]))
    _require_different(path, (query.query for query in queries))
    if {query.should_trigger for query in queries} != {True, False}:
        raise UsageError(f"{path}: there must be queries that should trigger the skill, and some that should not")
    return queries


def read_evals(path: Path, root: Path) -> SkillEvals:
    """The evaluations of a file; `files` are relative to `root`. Raises UsageError for what has not the form."""
    evals = _read(path, TypeAdapter(SkillEvals))
    if evals.skill_name != resources.SKILL_NAME:
        raise UsageError(f"{path}: the skill's name is {resources.SKILL_NAME}, not {evals.skill_name}")
    _require_different(path, (item.id for item in evals.evals))
    for name in (name for item in evals.evals for name in item.files):
        if not (root / name).is_file():
            raise UsageError(f"{path}: {root} has no file {name}")
    return evals


def read_form(path: Path, form: type[Form], shape: str) -> Form:
    """A JSON file of this form; raises UsageError that names what is wrong first, with the shape as its hint."""
    return _read(path, TypeAdapter(form), shape)


def _read(path: Path, form: TypeAdapter[Form], shape: str = str(__doc__)) -> Form:
    try:
        return form.validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{path}: {where}: {first['msg']}", hint=shape.partition("\n\n")[2]) from error


def _require_different(path: Path, values: Iterable[Hashable]) -> None:
    value, count = Counter(values).most_common(1)[0] if (values := list(values)) else ("", 0)
    if count > 1:
        raise UsageError(f"{path}: {value!r:.100} stands there {count} times")

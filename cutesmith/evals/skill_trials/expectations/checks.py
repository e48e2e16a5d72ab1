"""What code can decide of an expectation: `checks.json` beside `evals.json`, read strictly.

    {"skill_name": "…", "checks": [{"expectation": "kernel.py verifies", "check": "passes",
                                    "script": "verify_kernel.py", "path": "kernel.py"}]}

The expectation's words are those of `evals.json`; one with several checks is met when all are. `check` is one of

    exists        path                          a file of this name was left behind
    defines       path, names                   … and defines these names at top level
    passes        script, path, arguments       … and the script, run on it now, exits with 0; `problem`, one of the
                                                evaluation's files, gives verify_kernel.py its own reference
    called        script, words, exit_code      the agent ran it, with all of these words, with this exit code
    not_called    scripts                       the agent ran none of them (empty: no script at all)
    called_first  script, words                 the agent ran it before it wrote a file
    always_with   scripts, words                it ran one of them at least, and each time with these words
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cutesmith.agent.transcript import Event
from cutesmith.errors import CutesmithError, UsageError
from cutesmith.evals.skill_trials.expectations.session_tools import SCRIPTS, TIMED_OUT, run_script
from cutesmith.evals.skill_trials.forms import SkillEvals, Words, read_form
from cutesmith.problems import contract
from cutesmith.verdicts import ExitCode

CHECKS = "checks.json"
Script = Literal[SCRIPTS]  # type: ignore[valid-type]
NO_WORD = (ExitCode.UNAVAILABLE, ExitCode.INTERNAL, TIMED_OUT)
"""Exit codes that say nothing of the file."""
RESULT, WAY = "result", "way"
"""What a check looks at: what was left behind, or how the agent went about it."""


class _Check(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    expectation: Words


class Exists(_Check):
    """A file was left behind."""

    check: Literal["exists"]
    path: Words


class Defines(_Check):
    """A file defines names at top level."""

    check: Literal["defines"]
    path: Words
    names: list[Words] = Field(min_length=1)


class Passes(_Check):
    """A script exits with 0 on a file, run when it is graded."""

    check: Literal["passes"]
    script: Script
    path: Words
    arguments: list[Words] = []
    problem: str = ""


class Called(_Check):
    """The agent ran a script."""

    check: Literal["called"]
    script: Script
    words: list[Words] = []
    exit_code: int | None = None


class NotCalled(_Check):
    """The agent ran none of some scripts."""

    check: Literal["not_called"]
    scripts: list[Script] = []


class CalledFirst(_Check):
    """The agent ran a script before it wrote a file."""

    check: Literal["called_first"]
    script: Script
    words: list[Words] = []


class AlwaysWith(_Check):
    """The agent ran some of these scripts, each time with these words."""

    check: Literal["always_with"]
    scripts: list[Script] = Field(min_length=1)
    words: list[Words] = Field(min_length=1)


Check = Annotated[
    Exists | Defines | Passes | Called | NotCalled | CalledFirst | AlwaysWith, Field(discriminator="check")
]


class SkillChecks(BaseModel):
    """All checks of a skill's evaluations."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    skill_name: Words
    checks: list[Check] = []


Checks = Mapping[str, Sequence[Check]]
"""By the words of the expectation."""


@dataclass(frozen=True)
class Seen:
    """A session: its events, the folder that it left, and where the task's own files are, untouched."""

    events: Sequence[Event]
    work: Path
    root: Path


@dataclass(frozen=True)
class Decision:
    """What code says of a check, and what it saw; `met` None where this machine could not find out."""

    met: bool | None
    evidence: str


def read_checks(path: Path, evals: SkillEvals) -> dict[str, list[Check]]:
    """The checks of a file, by expectation; none where there is no file.

    Raises UsageError for what has not the form, and for an expectation that `evals` does not have.
    """
    if not path.is_file():
        return {}
    known = {words for item in evals.evals for words in item.expectations}
    found: dict[str, list[Check]] = {}
    for check in read_form(path, SkillChecks, str(__doc__)).checks:
        if check.expectation not in known:
            raise UsageError(
                f"{path}: no evaluation expects {check.expectation!r}", hint="Take its words over exactly."
            )
        found.setdefault(check.expectation, []).append(check)
    return found


def looks_at(checks: Sequence[Check]) -> str:
    """Whether these look at the result or at the way that was taken."""
    return RESULT if all(isinstance(check, (Exists, Defines, Passes)) for check in checks) else WAY


async def decide(check: Check, seen: Seen) -> Decision:
    """Whether a session meets a check."""
    if isinstance(check, Passes):
        return await _passes(check, seen)
    return _DECIDERS[type(check)](check, seen)


def calls_of(events: Sequence[Event]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Every script that was run, with the place of its event."""
    for place, event in enumerate(events):
        yield from ((place, effect) for effect in event.get("effects", ()) if effect["do"] == "script")


def _line(call: Mapping[str, Any]) -> str:
    return f"{' '.join([call['script'], *call['arguments']])} (exit code {call['exit_code']})"


def _has(call: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Whether a call has all of the words, next to each other or not; `--arch=x` counts as `--arch x`."""
    given = " ".join(call["arguments"]).replace("=", " ").lower()
    return all(word.lower() in given for word in words)


def left_behind(work: Path, path: str) -> Path | None:
    """The file of this name in the folder, else the youngest one of that name below it; None without any."""
    if (work / path).is_file():
        return work / path
    found = [place for place in work.rglob(Path(path).name) if place.is_file() and not _is_hidden(place, work)]
    return max(found, key=lambda place: place.stat().st_mtime_ns, default=None)


def _is_hidden(place: Path, work: Path) -> bool:
    return any(part.startswith(".") for part in place.relative_to(work).parts)


def _exists(check: Exists, seen: Seen) -> Decision:
    found = left_behind(seen.work, check.path)
    if found is None:
        return Decision(False, f"there is no {check.path}")
    return Decision(True, f"{found.relative_to(seen.work)} is there")


def _defines(check: Defines, seen: Seen) -> Decision:
    found = left_behind(seen.work, check.path)
    if found is None:
        return Decision(False, f"there is no {check.path}")
    try:
        tree = contract.parse(contract.problem_source(found), found.relative_to(seen.work))
    except CutesmithError as error:
        return Decision(False, error.message)
    defined = {name for statement in contract.module_scope(tree.body) for name in contract.defined_names(statement)}
    missing = [name for name in check.names if name not in defined]
    told = f"no {', '.join(missing)}" if missing else ", ".join(check.names)
    return Decision(not missing, f"{found.relative_to(seen.work)} defines {told}")


async def _passes(check: Passes, seen: Seen) -> Decision:
    found = left_behind(seen.work, check.path)
    if found is None:
        return Decision(False, f"there is no {check.path}")
    arguments = [str(found.relative_to(seen.work)), *check.arguments]
    own = ["--problem", str(seen.root / check.problem)] if check.problem else []
    code, text = await run_script(check.script, [*arguments, *own], seen.work)
    told = f"{check.script} {' '.join(arguments)} exits with {code}: {_last_line(text)}"
    return Decision(None if code in NO_WORD else code == 0, told)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]


def _called(check: Called, seen: Seen) -> Decision:
    calls = [call for _, call in calls_of(seen.events) if call["script"] == check.script]
    fitting = [call for call in calls if _has(call, check.words) and check.exit_code in (None, call["exit_code"])]
    if fitting:
        return Decision(True, _line(fitting[0]))
    return Decision(False, "; ".join(map(_line, calls)) or f"{check.script} was not run")


def _not_called(check: NotCalled, seen: Seen) -> Decision:
    calls = [call for _, call in calls_of(seen.events) if not check.scripts or call["script"] in check.scripts]
    return Decision(not calls, "; ".join(map(_line, calls)) or "none was run")


def _called_first(check: CalledFirst, seen: Seen) -> Decision:
    runs = [at for at, call in calls_of(seen.events) if call["script"] == check.script and _has(call, check.words)]
    writes = [at for at, event in enumerate(seen.events) for did in event.get("effects", ()) if did["do"] == "write"]
    if not runs:
        return Decision(False, f"{' '.join([check.script, *check.words])} was not run")
    first = min(writes, default=len(seen.events))
    return Decision(runs[0] < first, f"run at event {runs[0]}, first written at {first if writes else 'none'}")


def _always_with(check: AlwaysWith, seen: Seen) -> Decision:
    calls = [call for _, call in calls_of(seen.events) if call["script"] in check.scripts]
    without = [call for call in calls if not _has(call, check.words)]
    if not calls:
        return Decision(False, f"none of {', '.join(check.scripts)} was run")
    return Decision(not without, "; ".join(map(_line, without or calls)))


_DECIDERS: dict[type[_Check], Callable[..., Decision]] = {
    Exists: _exists,
    Defines: _defines,
    Called: _called,
    NotCalled: _not_called,
    CalledFirst: _called_first,
    AlwaysWith: _always_with,
}

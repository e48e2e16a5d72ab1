"""Every expectation of a session decided: by code where a check stands for it, else by a model, else by nobody.

`grading.json` beside the session's transcript has the form of skill-creator's (`references/schemas.md`), with the
verdict and who gave it added: there `passed` is false for what is undecided.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutesmith.agent.models.model import Model
from cutesmith.checkpoints import write_atomically
from cutesmith.evals.skill_trials.expectations.checks import RESULT, WAY, Check, Checks, Seen, decide, looks_at
from cutesmith.evals.skill_trials.expectations.model_grader import (
    FAILED,
    PASSED,
    UNDECIDED,
    Judgement,
    grade_by_model,
    material_of,
)
from cutesmith.evals.skill_trials.expectations.sessions import SessionPlace
from cutesmith.evals.skill_trials.forms import SkillEval
from cutesmith.verdicts import strict_json

FILE = "grading.json"
NOBODY = "nobody"
BY_MODEL = "model"
UNASKED = "no check stands for it and no --grader was given"


@dataclass(frozen=True, kw_only=True)
class Grade:
    """One expectation of one session: `verdict` passed, failed or undecided; `decided_by` result, way, model, nobody.

    `result` and `way` are code, looking at what was left behind or at how the agent went about it.
    """

    text: str
    verdict: str
    decided_by: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Grading:
    """All of a session; `key` is of what was asked and whom, `dollars` what the model's answer cost."""

    grades: tuple[Grade, ...]
    key: str
    dollars: float | None = 0.0

    def to_json(self) -> str:
        """The text of `grading.json`."""
        entries = [
            {"text": grade.text, "passed": grade.verdict == PASSED, "evidence": grade.evidence, **_more(grade)}
            for grade in self.grades
        ]
        counts = {name: sum(grade.verdict == name for grade in self.grades) for name in (PASSED, FAILED, UNDECIDED)}
        total = len(self.grades)
        summary = {**counts, "total": total, "pass_rate": counts[PASSED] / total if total else 0.0}
        fields = {"expectations": entries, "summary": summary, "key": self.key, "dollars": self.dollars}
        return json.dumps(json.loads(strict_json(fields)), indent=1) + "\n"


def _left_open(grading: Grading) -> bool:
    """Whether code could not find something out on the machine where it was tried."""
    return any(grade.verdict == UNDECIDED and grade.decided_by in (RESULT, WAY) for grade in grading.grades)


def _more(grade: Grade) -> dict[str, str]:
    return {"verdict": grade.verdict, "decided_by": grade.decided_by}


async def grade_session(
    task: SkillEval, repeat: int, place: SessionPlace, checks: Checks, grader: Model | None, root: Path
) -> Grading:
    """The session's grades, those that the folder holds already taken from there; written before they are given.

    Raises ModelError where the grader gives no answer.
    """
    key = _key(task, checks, grader)
    known = read_grading(place.folder)
    if known is not None and known.key == key and not _left_open(known):
        return known
    seen = Seen(place.events(), place.work, root)
    by_code = {text: await _by_code(text, checks[text], seen) for text in task.expectations if text in checks}
    rest = [text for text in task.expectations if text not in by_code]
    judgements, dollars = await _by_others(task, repeat, rest, grader, seen)
    decided = {**by_code, **{text: _grade(text, judgement, grader) for text, judgement in zip(rest, judgements)}}
    grading = Grading(grades=tuple(decided[text] for text in task.expectations), key=key, dollars=dollars)
    write_atomically(place.folder / FILE, grading.to_json().encode())
    return grading


async def _by_others(
    task: SkillEval, repeat: int, rest: Sequence[str], grader: Model | None, seen: Seen
) -> tuple[Sequence[Judgement], float | None]:
    if not rest or grader is None:
        return [Judgement(UNDECIDED, UNASKED)] * len(rest), 0.0
    answer = await grade_by_model(grader, task, repeat, rest, material_of(seen.events, seen.work))
    return answer.judgements, answer.dollars


def _grade(text: str, judgement: Judgement, grader: Model | None) -> Grade:
    who = NOBODY if grader is None else BY_MODEL
    return Grade(text=text, verdict=judgement.verdict, decided_by=who, evidence=judgement.evidence)


async def _by_code(text: str, checks: Sequence[Check], seen: Seen) -> Grade:
    """Met when every check is; failed by one that is not; undecided where one could not be found out."""
    decisions = [await decide(check, seen) for check in checks]
    failed = any(decision.met is False for decision in decisions)
    verdict = FAILED if failed else UNDECIDED if any(decision.met is None for decision in decisions) else PASSED
    evidence = "; ".join(decision.evidence for decision in decisions)
    return Grade(text=text, verdict=verdict, decided_by=looks_at(checks), evidence=evidence[:2000])


def read_grading(folder: Path) -> Grading | None:
    """The grades of a session; None where there are none that can be read."""
    try:
        known: dict[str, Any] = json.loads((folder / FILE).read_bytes())
        names = ("text", "verdict", "decided_by", "evidence")
        grades = tuple(Grade(**{name: str(entry[name]) for name in names}) for entry in known["expectations"])
        return Grading(grades=grades, key=str(known["key"]), dollars=known["dollars"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _key(task: SkillEval, checks: Checks, grader: Model | None) -> str:
    """Of the task, its checks and who decides the rest: grades of anything else do not count."""
    own = {text: [check.model_dump() for check in checks[text]] for text in task.expectations if text in checks}
    asked = [task.model_dump(), own, None if grader is None else grader.name]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]

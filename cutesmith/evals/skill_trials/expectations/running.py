"""Every session of a trial over `evals.json`, and its grades: what the folder holds already is neither asked nor paid
for again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cutesmith.agent.budget import Limits
from cutesmith.agent.models.model import Model
from cutesmith.agent.session_state import SessionState
from cutesmith.errors import UsageError
from cutesmith.evals.skill_trials.expectations.checks import Checks
from cutesmith.evals.skill_trials.expectations.grading import Grading, grade_session
from cutesmith.evals.skill_trials.expectations.scores import Graded
from cutesmith.evals.skill_trials.expectations.sessions import SessionPlace, hold_session
from cutesmith.evals.skill_trials.forms import SkillEval
from cutesmith.evals.skill_trials.trial import Step, Trial, run_folder

ModelOf = Callable[[Step], Model]


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What is to be held: the evaluations with their checks, who works and who grades, within which limits.

    `root` is what the evaluations' files are relative to; `grader` None: what code cannot decide stays undecided.
    `most_of_a_grading` is what one costs at most; `most_dollars` None: no limit over all.
    """

    tasks: Sequence[SkillEval]
    checks: Checks
    root: Path
    agent: ModelOf
    grader: ModelOf | None
    limits: Limits
    most_of_a_grading: float = 0.0
    most_dollars: float | None = None


@dataclass
class Held:
    """What came of it so far."""

    total: int
    sessions: list[Graded] = field(default_factory=list)
    out_of_dollars: bool = False

    @property
    def dollars(self) -> float:
        """Of the sessions and their grading."""
        return sum((one.dollars or 0.0) + (one.grading.dollars or 0.0) for one in self.sessions)


def place_of(out: Path, step: Step, task: SkillEval) -> SessionPlace:
    """Where a session is kept."""
    return SessionPlace(folder=run_folder(out, step) / str(task.id))


async def hold_all(holding: Holding, trial: Trial, out: Path, say: Callable[[Graded], None], held: Held) -> None:
    """Hold and grade every session, in the trial's order; `held` is kept up to date, also when this is interrupted.

    Ends early where the next session could pass `most_dollars`. Raises ModelError, TranscriptError, UsageError.
    """
    for step in trial.steps():
        agent = holding.agent(step)
        grader = holding.grader(step) if holding.grader else None
        for task in holding.tasks:
            place = place_of(out, step, task)
            if not place.is_over():
                if not _affordable(holding, trial, held):
                    held.out_of_dollars = True
                    return
                await hold_session(task, step.arm, agent, _limits(holding, trial), place, holding.root)
            grading = await grade_session(task, step.repeat, place, holding.checks, grader, holding.root)
            held.sessions.append(graded(task, step, place, grading))
            say(held.sessions[-1])


def _affordable(holding: Holding, trial: Trial, held: Held) -> bool:
    if holding.most_dollars is None:
        return True
    return held.dollars + (trial.cap or 0.0) + holding.most_of_a_grading <= holding.most_dollars * (1 + 1e-9)


def _limits(holding: Holding, trial: Trial) -> Limits:
    return replace(holding.limits, dollars=trial.cap) if trial.cap is not None else holding.limits


def graded(task: SkillEval, step: Step, place: SessionPlace, grading: Grading) -> Graded:
    """A session that is over, with its grades and what it took."""
    standing = SessionState.of(place.events())
    return Graded(
        eval=task.id,
        arm=step.arm,
        repeat=step.repeat,
        grading=grading,
        dollars=None if standing.unpriced else standing.dollars,
        tokens=standing.usage.total,
        turns=standing.turns.get(task.id, 0),
        ending=str(standing.endings[task.id]["ending"]),
    )


def chosen(tasks: Sequence[SkillEval], only: Sequence[str]) -> list[SkillEval]:
    """The evaluations of these numbers, all without any; raises UsageError for one that does not exist."""
    known: Mapping[str, SkillEval] = {str(task.id): task for task in tasks}
    for number in only:
        if number not in known:
            raise UsageError(f"there is no evaluation {number}", hint=f"There are: {', '.join(known)}")
    return [known[number] for number in dict.fromkeys(only)] if only else list(tasks)

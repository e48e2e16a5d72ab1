"""`cutesmith eval skill --evals`: the prompts of evals.json with and without the skill, each expectation decided."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from cutesmith import resources
from cutesmith.agent.models.anthropic_model import DEFAULT_MODEL, AnthropicModel
from cutesmith.agent.models.model import Model
from cutesmith.agent.models.prices import SOURCE
from cutesmith.agent.settings import Settings
from cutesmith.commands._agent import make_model
from cutesmith.commands._agent_options import settings_of
from cutesmith.commands._run import INTERRUPTED, report
from cutesmith.errors import UsageError
from cutesmith.evals.report.files import write_texts
from cutesmith.evals.skill_trials import forms
from cutesmith.evals.skill_trials.expectations import checks, model_grader
from cutesmith.evals.skill_trials.expectations.report import html, markdown
from cutesmith.evals.skill_trials.expectations.running import Held, Holding, ModelOf, chosen, hold_all
from cutesmith.evals.skill_trials.expectations.scores import ExpectationScores, Graded, expectation_scores
from cutesmith.evals.skill_trials.trial import BARE, EVALS, WITH, Step, Trial, keep_trial, read_trial
from cutesmith.verdicts import ExitCode, Verdict

CLAUDE = "claude"


@dataclass(frozen=True, kw_only=True)
class ExpectationPlanVerdict(Verdict):
    """What would be held, and at most how many dollars it costs; None where nothing costs anything."""

    stage: ClassVar[str] = "eval skill --evals --plan"

    sessions: int
    expectations: int
    by_code: int
    dollars: float | None


@dataclass(frozen=True, kw_only=True)
class ExpectationVerdict(Verdict):
    """The sessions as they stand; PASSED when all were held and graded, whatever they show."""

    stage: ClassVar[str] = "eval skill --evals"

    folder: str
    total: int
    done: int
    dollars: float
    scores: ExpectationScores


def hold_evals(options: Namespace, session: list[str]) -> int:
    """Hold every session that is due, grade it, and report what came of it."""
    from cutesmith.commands.eval_skill import accept_costs

    trial = _trial(options, session)
    holding = _holding(trial, options)
    plan = _plan(trial, holding)
    if options.plan:
        return report(plan, as_json=options.json, lines=[plan.summary])
    print(plan.summary, file=sys.stderr)
    if not options.out:
        raise UsageError("--out is missing: the folder of the sessions", hint="--plan alone needs none.")
    accept_costs(plan.dollars is not None, options.yes)
    keep_trial(Path(options.out), trial)
    return _hold(options, holding, trial)


def _trial(options: Namespace, session: Sequence[str]) -> Trial:
    known = read_trial(Path(options.out)) if options.out and options.resume else None
    if known is not None:
        return known
    both = options.whole == options.bare
    path = Path(options.evals) if options.evals else forms.folder() / forms.EVALS
    trial = Trial(
        words=(EVALS, str(path.absolute()), *(word for number in options.only or () for word in ("--only", number))),
        agent=_placed(options.agent),
        session=tuple(session),
        arms=tuple(name for name, wanted in ((WITH, options.whole or both), (BARE, options.bare or both)) if wanted),
        repeats=options.repeats,
        seed=options.seed,
    )
    return _with_cap(trial, options)


def _placed(text: str) -> str:
    """The agent with the absolute place of its script; raises UsageError for one that cannot hold a conversation."""
    kind, _, place = text.partition(":")
    if text == CLAUDE:
        return text
    if kind != "script" or not place:
        raise UsageError(f"{text}: nobody who holds these sessions", hint="Use claude or script:FILE.")
    return f"script:{Path(place).absolute()}"


def _with_cap(trial: Trial, options: Namespace) -> Trial:
    """What a session may cost: as it says after --, else its part of what --max-dollars leaves beside the grading."""
    settings = _settings(trial.agent, trial.session)
    if trial.agent != CLAUDE:
        return trial
    if settings.limits.dollars is not None:
        return replace(trial, cap=settings.limits.dollars)
    if options.max_dollars is None:
        hint = "Give --max-dollars for all sessions together, or after -- for each of them."
        raise UsageError("nothing limits what this costs", hint=hint)
    sessions = len(_tasks(trial)[0]) * len(trial.arms) * trial.repeats
    cap = options.max_dollars / sessions - _grading_dollars(options.grader, trial)
    if cap <= 0:
        raise UsageError(f"--max-dollars {options.max_dollars:g}: the grading of {sessions} sessions may take it all")
    return replace(trial, cap=cap)


def _settings(agent: str, session: Sequence[str]) -> Settings:
    from cutesmith.commands.generate import generate_parser

    return settings_of(generate_parser().parse_args(["problem.py", f"--agent={agent}", *session]), Settings())


def _tasks(trial: Trial) -> tuple[list[forms.SkillEval], checks.Checks, Path]:
    """The evaluations that a trial is about, their checks, and what their files are relative to."""
    path, only = Path(trial.words[1]), trial.words[3::2]
    root = resources.PACKAGE.parent
    root = root if path.is_relative_to(root) else path.parent
    evals = forms.read_evals(path, root)
    return chosen(evals.evals, only), checks.read_checks(path.parent / checks.CHECKS, evals), root


def _holding(trial: Trial, options: Namespace) -> Holding:
    tasks, known, root = _tasks(trial)
    return Holding(
        tasks=tasks,
        checks=known,
        root=root,
        agent=_model_of(trial.agent, trial.session, grades=False),
        grader=_model_of(_placed(options.grader), trial.session, grades=True) if options.grader else None,
        limits=_settings(trial.agent, trial.session).limits,
        most_of_a_grading=_grading_dollars(options.grader, trial),
        most_dollars=options.max_dollars,
    )


def _grading_dollars(grader: str, trial: Trial) -> float:
    """The most that one grading costs; raises UsageError for a model without a known price."""
    if grader != CLAUDE:
        return 0.0
    name = _settings(CLAUDE, trial.session).model or DEFAULT_MODEL
    most = model_grader.most_dollars_of_a_grading(name)
    if most is None:
        raise UsageError(f"the price of {name} is not known", hint=f"Take a model of the table: {SOURCE}")
    return most


def _model_of(agent: str, session: Sequence[str], *, grades: bool) -> ModelOf:
    """Who answers in a run: a script of its own where its path holds {arm} or {repeat}."""

    def model(step: Step) -> Model:
        own = agent.replace("{arm}", step.arm).replace("{repeat}", str(step.repeat))
        settings = _settings(own, session)
        if grades and agent == CLAUDE:
            tokens = model_grader.ANSWER_TOKENS
            return AnthropicModel(settings.model or DEFAULT_MODEL, effort=settings.effort, max_tokens=tokens)
        return make_model(settings)

    return model


def _plan(trial: Trial, holding: Holding) -> ExpectationPlanVerdict:
    """What will be held and what it costs at most."""
    sessions = len(holding.tasks) * len(trial.arms) * trial.repeats
    texts = [text for task in holding.tasks for text in task.expectations]
    by_code = sum(text in holding.checks for text in texts)
    rest = "a model decides the others" if holding.grader else "the others stay undecided without --grader"
    said = [
        f"{sessions} sessions with {trial.agent}: {len(holding.tasks)} evaluations, {trial.repeats} repeats of "
        + ", ".join(trial.arms),
        f"{by_code} of {len(texts)} expectations are decided by code; {rest}",
    ]
    most = sessions * ((trial.cap or 0.0) + holding.most_of_a_grading)
    total = min(most, holding.most_dollars or most) if most else None
    said.append("no session costs anything" if total is None else f"at most {total:,.2f} dollars in all")
    return ExpectationPlanVerdict(
        exit_code=ExitCode.PASSED,
        summary="\n".join(said),
        sessions=sessions,
        expectations=len(texts),
        by_code=by_code,
        dollars=total,
    )


def _hold(options: Namespace, holding: Holding, trial: Trial) -> int:
    began, out = time.monotonic(), Path(options.out)
    held = Held(total=len(holding.tasks) * len(trial.arms) * trial.repeats)
    interrupted = False
    try:
        asyncio.run(_ready_and_hold(holding, trial, out, options, held))
    except KeyboardInterrupt:
        interrupted = True
    verdict = _verdict(held, out, time.monotonic() - began, interrupted)
    text = "\n".join(markdown(verdict.scores, trial.repeats)) + "\n"
    page = html(verdict.scores, trial.repeats)
    write_texts(
        {out / "report.md": text, out / "report.html": page, out / "result.json": verdict.to_json(indent=1) + "\n"}
    )
    code = report(verdict, as_json=options.json, lines=[text, verdict.summary])
    return INTERRUPTED if interrupted else code


async def _ready_and_hold(holding: Holding, trial: Trial, out: Path, options: Namespace, held: Held) -> None:
    """Find out before the first session that somebody cannot be asked."""
    first = trial.steps()[0]
    for who in (holding.agent, holding.grader):
        if who is not None:
            await who(first).ready()
    await hold_all(holding, trial, out, _say(options), held)


def _verdict(held: Held, out: Path, seconds: float, interrupted: bool) -> ExpectationVerdict:
    done = len(held.sessions)
    why = "interrupted" if interrupted else "no dollars left"
    whole = done == held.total
    then = str(out / "report.html") if whole else f"{why}; go on with: cutesmith eval skill --resume --out {out}"
    return ExpectationVerdict(
        exit_code=ExitCode.PASSED if whole else ExitCode.TIMED_OUT,
        summary=f"{done} of {held.total} sessions are graded; {then}",
        seconds=round(seconds, 1),
        folder=str(out),
        total=held.total,
        done=done,
        dollars=round(held.dollars, 4),
        scores=expectation_scores(held.sessions),
    )


def _say(options: Namespace) -> Any:
    def say(one: Graded) -> None:
        if not options.quiet:
            verdicts = [grade.verdict for grade in one.grading.grades]
            told = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
            print(f"evaluation {one.eval}, {one.arm}, repeat {one.repeat + 1}: {told}", file=sys.stderr, flush=True)

    return say

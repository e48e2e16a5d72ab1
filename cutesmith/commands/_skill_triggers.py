"""`cutesmith eval skill --triggers`: queries to a model that sees names and descriptions of skills alone."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cutesmith.agent.models.anthropic_model import DEFAULT_MODEL, AnthropicModel
from cutesmith.agent.models.model import Model
from cutesmith.agent.models.prices import SOURCE
from cutesmith.agent.settings import Settings
from cutesmith.commands._agent import make_model
from cutesmith.commands._agent_options import settings_of
from cutesmith.commands._run import report
from cutesmith.errors import UsageError
from cutesmith.evals.skill_trials import forms, tables, triggers
from cutesmith.evals.skill_trials.trigger_scores import TriggerScores, trigger_scores
from cutesmith.evals.skill_trials.triggers import Answer, Asking
from cutesmith.verdicts import ExitCode, Verdict


@dataclass(frozen=True, kw_only=True)
class TriggerPlanVerdict(Verdict):
    """What would be asked, and at most how many dollars it costs."""

    stage: ClassVar[str] = "eval skill --triggers --plan"

    answers: int
    dollars: float | None


@dataclass(frozen=True, kw_only=True)
class TriggerVerdict(Verdict):
    """What a model did with the queries; PASSED when all were answered, whatever it did."""

    stage: ClassVar[str] = "eval skill --triggers"

    folder: str
    model: str
    total: int
    done: int
    scores: TriggerScores


def ask_triggers(options: Namespace, session: list[str]) -> int:
    """Ask every query as often as it is due, and report what came of it."""
    from cutesmith.commands.eval_skill import accept_costs

    queries = forms.read_triggers(Path(options.queries) if options.queries else forms.folder() / forms.TRIGGERS)
    asking = Asking(queries=queries, repeats=options.repeats, most_dollars=options.max_dollars)
    model, paid = _model(options, session)
    plan = _plan(asking, model, paid)
    if options.plan:
        return report(plan, as_json=options.json, lines=[plan.summary])
    print(plan.summary, file=sys.stderr)
    if not options.out:
        raise UsageError("--out is missing: the folder of the answers", hint="--plan alone needs none.")
    accept_costs(paid, options.yes)
    return _ask(options, asking, model)


def _model(options: Namespace, session: list[str]) -> tuple[Model, bool]:
    """Who is asked, and whether that costs something; an answer is short, so that its cost has a small bound."""
    from cutesmith.commands.generate import generate_parser

    settings = settings_of(
        generate_parser().parse_args(["problem.py", f"--agent={options.agent}", *session]), Settings()
    )
    if options.agent != "claude":
        return make_model(settings), False
    name = settings.model or DEFAULT_MODEL
    return AnthropicModel(name, effort=settings.effort, max_tokens=triggers.ANSWER_TOKENS), True


def _plan(asking: Asking, model: Model, paid: bool) -> TriggerPlanVerdict:
    """What will be asked and what it costs at most; raises UsageError for a model without a known price."""
    should = sum(query.should_trigger for query in asking.queries)
    kinds = f"{should} that should load the skill, {len(asking.queries) - should} that should not"
    bound, cost = None, "no answer costs anything"
    if paid:
        bound = triggers.most_dollars_of(asking, model.name)
        if bound is None:
            raise UsageError(f"the price of {model.name} is not known", hint=f"Take a model of the table: {SOURCE}")
        bound = min(bound, asking.most_dollars or bound)
        cost = f"at most {bound:,.2f} dollars in all"
    said = f"{asking.total} answers of {model.name}: {kinds}, {asking.repeats} repeats\n{cost}"
    return TriggerPlanVerdict(exit_code=ExitCode.PASSED, summary=said, answers=asking.total, dollars=bound)


def _ask(options: Namespace, asking: Asking, model: Model) -> int:
    began, out = time.monotonic(), Path(options.out)

    async def work() -> list[Answer]:
        await model.ready()
        return await triggers.ask_all(asking, model, out, _say(options))

    answers = asyncio.run(work())
    scores, whole = trigger_scores(answers), len(answers) == asking.total
    why = "" if whole else "; no dollars left"
    verdict = TriggerVerdict(
        exit_code=ExitCode.PASSED if whole else ExitCode.TIMED_OUT,
        summary=f"{len(answers)} of {asking.total} answers{why}: {out / triggers.FILE}",
        seconds=round(time.monotonic() - began, 1),
        folder=str(out),
        model=model.name,
        total=asking.total,
        done=len(answers),
        scores=scores,
    )
    return report(verdict, as_json=options.json, lines=[*tables.trigger_lines(scores), "", verdict.summary])


def _say(options: Namespace) -> triggers.Told:
    def say(answer: Answer) -> None:
        if not options.quiet:
            right = "right" if answer.triggered == answer.should_trigger else "WRONG"
            print(f"{right}: {' '.join(answer.query.split())[:100]}", file=sys.stderr, flush=True)

    return say

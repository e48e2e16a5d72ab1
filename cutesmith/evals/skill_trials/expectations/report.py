"""The pass rates as Markdown, for a terminal and for `report.md` alike."""

from __future__ import annotations

from collections.abc import Iterator

from cutesmith.evals.report import wording
from cutesmith.evals.running.screen import one_line
from cutesmith.evals.skill_trials.expectations.scores import ArmCosts, ExpectationRates, ExpectationScores, Overall
from cutesmith.evals.skill_trials.page import Difference, render_trial
from cutesmith.evals.skill_trials.report import FEW
from cutesmith.evals.skill_trials.tables import points, share, table, too_few
from cutesmith.evals.skill_trials.trial import BARE, WITH


def markdown(scores: ExpectationScores, repeats: int) -> Iterator[str]:
    """What the sessions show."""
    yield "# Is it as it is expected to be?"
    yield ""
    if repeats < FEW:
        yield f"With {repeats} of at least {FEW} repeats: what a single session happens to do weighs too much."
        yield ""
    if not scores.grades:
        yield "No session is graded yet."
        return
    yield from too_few(scores.all.evals, "evaluations")
    yield from table(("arm", "sessions", "cut short", "$", "tokens/session", "turns"), map(_costs, scores.costs))
    yield ""
    yield f"Share of expectations that hold, a mean over evaluations; {scores.undecided} of {scores.grades} undecided:"
    yield ""
    rows = (("all", scores.all), ("without those on the way taken", scores.without_ways))
    yield from table(("expectations", "evaluations", *(WITH, BARE), "difference"), (_overall(*row) for row in rows))
    yield ""
    yield from table(("", "expectation", "by", WITH, BARE, "difference"), map(_rates, scores.rates))
    yield ""
    yield "`by`: code that looks at the `result` or at the `way` taken, a `model`, or `nobody`. What is undecided"
    yield "counts as not passed; the interval of a difference reaches over both ways in which it may come out."
    yield f"A session of `{BARE}` has the judge's scripts alone: few ways can hold there."


def html(scores: ExpectationScores, repeats: int) -> str:
    """The same as a page of its own; raises UnavailableError without jinja2."""
    whole = [("all expectations", scores.all), ("without those on the way taken", scores.without_ways)]
    over_all = [Difference(name, overall.difference) for name, overall in whole if overall.difference]
    single = [Difference(f"{rates.eval}: {rates.text}", rates.difference) for rates in scores.rates if rates.difference]
    caption = f"share of expectations that hold, {WITH} less {BARE}, in points"
    return render_trial(markdown(scores, repeats), [*over_all, *single], caption)


def _costs(costs: ArmCosts) -> tuple[str, ...]:
    numbers = (wording.plain(costs.tokens_a_session), wording.plain(costs.turns_a_session))
    return costs.arm, str(costs.sessions), str(costs.cut_short), f"{costs.dollars:.2f}", *numbers


def _overall(name: str, overall: Overall) -> tuple[str, ...]:
    arms = (wording.share_score(overall.arms[arm]) if arm in overall.arms else wording.UNKNOWN for arm in (WITH, BARE))
    return name, str(overall.evals), *arms, points(overall.difference) if overall.difference else wording.UNKNOWN


def _rates(rates: ExpectationRates) -> tuple[str, ...]:
    arms = (_arm(rates, arm) for arm in (WITH, BARE))
    difference = points(rates.difference) if rates.difference else wording.UNKNOWN
    return str(rates.eval), one_line(rates.text), ", ".join(rates.decided_by), *arms, difference


def _arm(rates: ExpectationRates, arm: str) -> str:
    if arm not in rates.passed:
        return wording.UNKNOWN
    passed, open_ = rates.passed[arm], rates.undecided[arm]
    return f"{passed.count} of {passed.of}, {share(passed)}{f' ({open_} undecided)' if open_ else ''}"

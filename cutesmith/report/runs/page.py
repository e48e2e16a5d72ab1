"""`report.html` of one run or several side by side: one file that loads nothing, whose own script alone may run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cutesmith.evals.scores.estimators import THRESHOLDS
from cutesmith.evals.scores.summaries import Score
from cutesmith.report.environment import render
from cutesmith.report.runs import distribution, figures, rooflines, wording
from cutesmith.report.runs.entries import Gathering, PageData, embedded
from cutesmith.report.runs.tables import KINDS, METHOD, ScoredRun, denominators, price_of_a_win, remarks

FIRST_BASELINES = 2  # that have a figure of their own at the top of the page


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that the template shows."""

    runs: Sequence[ScoredRun]
    data: PageData
    curves: Sequence[figures.CurveChart]
    distribution: distribution.DistributionChart | None
    floors: rooflines.FloorChart | None
    roofline: rooflines.RooflineChart | None

    @property
    def title(self) -> str:
        """The runs' names."""
        return " · ".join(scored.run.name for scored in self.runs)

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """What a reader must know of the data: the run's name and a sentence."""
        return [(scored.run.name, remark) for scored in self.runs for remark in remarks(scored.run)]

    @property
    def facts(self) -> list[tuple[str, str, str]]:
        """Of a single run the numbers that a reader looks for first: value, label, interval."""
        return _facts(self.runs[0]) if len(self.runs) == 1 else []


def render_runs(runs: Sequence[ScoredRun], *, beside: Path) -> str:
    """The whole page for a file in the folder `beside`, as HTML that can be written as UTF-8.

    Raises UnavailableError without jinja2.
    """
    plain = [scored.run for scored in runs]
    data = Gathering(plain, beside).page_data()
    places = {name: place for place, name in enumerate(data.names)}
    page = Page(
        runs=runs,
        data=data,
        curves=figures.curve_charts(plain),
        distribution=distribution.distribution_chart(plain, places),
        floors=rooflines.floor_chart(plain, places),
        roofline=rooflines.roofline_chart(plain, places),
    )
    return render(
        "run.html.j2",
        script="run_page.js",
        page=page,
        data=embedded(data.content),
        wording=wording,
        figures=figures,
        thresholds=THRESHOLDS,
        kinds=KINDS,
        method=METHOD,
        price_of_a_win=price_of_a_win,
        denominators=denominators,
    )


def _facts(scored: ScoredRun) -> list[tuple[str, str, str]]:
    card, costs = scored.whole, scored.costs
    first = list(card.against.items())[:FIRST_BASELINES]
    solved = sum(task.solved for task in scored.run.tasks)
    found = [(f"{solved} of {card.tasks}", "tasks solved", wording.share_interval(card.correct.interval))]
    found += [_share_fact(entry.fast[1.0], f"correct and faster than {name}") for name, entry in first]
    for name, entry in first:
        mean = entry.geometric_mean
        interval = wording.factor_interval(mean.interval)
        found.append((wording.factor(mean.value), f"geometric mean against {name}", interval))
    if card.floor.over:
        found.append(_share_fact(card.floor, "of the roofline, median"))
    if costs.dollars:
        found.append((wording.dollars(costs.per_win(costs.dollars), costs), "a solved task", ""))
    if costs.wins:
        found.append((wording.plain(costs.per_win(costs.minutes), "min"), "a solved task, all attempts", ""))
    return found


def _share_fact(score: Score, label: str) -> tuple[str, str, str]:
    return wording.share(score.value), label, wording.share_interval(score.interval)

"""The leaderboard as Markdown, as a page, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutesmith.evals.scores.costs import Costs
from cutesmith.evals.scores.ranking import Standing, Table
from cutesmith.evals.scores.scorecard import Against
from cutesmith.evals.scores.summaries import Score
from cutesmith.report.environment import render
from cutesmith.report.runs import wording
from cutesmith.report.runs.tables import markdown_table, took

COLUMNS = "place,run,kernels by,fast_1,correct,geometric mean,of the roofline,a solved task,date".split(",")
TIES = "Runs with = share the place of the one above them: their paired 95 % interval does not set them below it."


def cells(standing: Standing, baseline: str) -> list[str]:
    """One line of the table, in the order of COLUMNS."""
    run, card = standing.run, standing.card
    entry = card.against[baseline]
    fast = wording.share_score(entry.fast[1.0]) + (f", {entry.untimed} not timed" if entry.untimed else "")
    place, makers = f"{standing.place}{'=' * standing.tied}", ", ".join(run.sources) or wording.UNKNOWN
    scores = [fast, wording.share_score(card.correct), wording.factor_score(entry.geometric_mean)]
    spent = [wording.share_score(card.floor), took(standing.costs)]
    return [place, run.name, makers, *scores, *spent, run.finished[:10] or wording.UNKNOWN]


def heading(table: Table, baseline: str) -> str:
    """What a table is over."""
    return f"{table.title}: {table.tasks} tasks, against {baseline}"


def markdown(tables: Sequence[Table], baseline: str) -> str:
    """Every table, and what a tie is."""
    blocks = []
    for table in tables:
        rows = [cells(standing, baseline) for standing in table.standings]
        blocks += [f"## {heading(table, baseline)}", markdown_table(COLUMNS, rows)]
    return "\n\n".join([*blocks, TIES]) + "\n"


def page(tables: Sequence[Table], baseline: str) -> str:
    """One self-contained page; raises UnavailableError without jinja2."""
    shown = [
        (heading(table, baseline), [cells(standing, baseline) for standing in table.standings]) for table in tables
    ]
    return render("leaderboard.html.j2", tables=shown, columns=COLUMNS, ties=TIES)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A run's place in a table, with unrounded numbers."""

    place: int
    tied: bool
    name: str
    folder: str
    sources: Sequence[str]
    machines: Sequence[Mapping[str, str]]
    finished: str
    against: Against
    correct: Score
    costs: Costs


@dataclass(frozen=True, kw_only=True)
class PlainTable:
    """A table as JSON."""

    title: str
    tasks: int
    standings: tuple[Place, ...]


def plain(table: Table, baseline: str) -> PlainTable:
    """A table with unrounded numbers."""
    places = tuple(
        Place(
            place=standing.place,
            tied=standing.tied,
            name=standing.run.name,
            folder=str(standing.run.folder),
            sources=standing.run.sources,
            machines=[machine.model_dump() for machine in standing.run.machines],
            finished=standing.run.finished,
            against=standing.card.against[baseline],
            correct=standing.card.correct,
            costs=standing.costs,
        )
        for standing in table.standings
    )
    return PlainTable(title=table.title, tasks=table.tasks, standings=places)


FORMS = {".html": page, ".md": markdown}

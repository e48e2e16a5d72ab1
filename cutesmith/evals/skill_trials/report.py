"""A trial as it stands, as data and as Markdown: every number from the raw samples of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cutesmith.evals.skill_trials import page, tables
from cutesmith.evals.skill_trials.measuring import ArmScores, Difference, arm_scores, arms_of_trial, difference
from cutesmith.evals.skill_trials.pages import Ablation, PageUse, ablations, page_uses, transcripts
from cutesmith.evals.skill_trials.trial import BARE, WITH, WITHOUT, Trial

FEW = 3
"""Repeats below which what one session happens to do weighs too much."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What a trial shows so far; `difference` None without both arms, `pages` empty without the whole skill's."""

    repeats: int
    arms: tuple[ArmScores, ...]
    difference: Difference | None
    ablations: tuple[Ablation, ...]
    pages: tuple[PageUse, ...]


def findings(trial: Trial, out: Path) -> Findings:
    """What the runs of a trial's folder say."""
    runs = arms_of_trial(trial, out)
    whole, bare = runs.get(WITH), runs.get(BARE)
    uses = page_uses(transcripts(trial, out, WITH)) if whole else {}
    without = {f"{arm.removeprefix(WITHOUT)}.md": run for arm, run in runs.items() if arm.startswith(WITHOUT)}
    return Findings(
        repeats=trial.repeats,
        arms=tuple(arm_scores(run) for run in runs.values()),
        difference=difference(bare, whole) if bare and whole else None,
        ablations=tuple(ablations(whole, without, uses)) if whole else (),
        pages=tuple(uses.values()),
    )


def drawn(found: Findings) -> list[page.Difference]:
    """The differences of shares that a page draws."""
    own = [page.Difference(f"`{WITH}` less `{BARE}`", found.difference.solved)] if found.difference else []
    pages = (page.Difference(f"`{WITH}` less without {row.use.page}", row.difference.solved) for row in found.ablations)
    return [*own, *pages]


def html(found: Findings) -> str:
    """The findings as a page of their own; raises UnavailableError without jinja2."""
    return page.render_trial(markdown(found), drawn(found), "share of the tasks that are solved, in points")


def markdown(found: Findings) -> Iterator[str]:
    """The findings for people."""
    yield "# Does the skill help?"
    yield ""
    if found.repeats < FEW:
        yield f"With {found.repeats} of at least {FEW} repeats: what a single session happens to do weighs too much."
        yield ""
    yield from tables.too_few(max((arm.tasks for arm in found.arms), default=0), "tasks")
    yield from tables.arms_table(found.arms)
    if found.difference:
        yield ""
        yield from tables.difference_lines(found.difference)
    if found.ablations:
        yield from ("", "## Which pages earn their tokens", "")
        yield "What is lost without a page, the whole skill less the skill without it:"
        yield ""
        yield from tables.ablation_lines(found.ablations)
    if any(use.reads or use.hits for use in found.pages):
        yield from ("", "## What was read", "")
        yield from tables.uses_lines(found.pages)

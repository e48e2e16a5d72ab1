"""A trial and an asking as Markdown, for a terminal and for `report.md` alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from cutesmith.evals.report import wording
from cutesmith.evals.running.screen import one_line
from cutesmith.evals.scores.summaries import Score
from cutesmith.evals.skill_trials.measuring import ArmScores, Difference
from cutesmith.evals.skill_trials.pages import CHARACTERS_A_TOKEN, Ablation, PageUse
from cutesmith.evals.skill_trials.trigger_scores import Share, TriggerScores

SHOWN_FLIPS = 30
FEW_TASKS = 10
"""Below so many tasks an interval by drawing them again is too narrow: of few, the same few come up."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table, its columns as wide as they need to be."""
    cells = [list(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(head))]  # GitHub wants three dashes
    padded = [[cell.ljust(width) for cell, width in zip(row, widths)] for row in cells]
    ruled = [padded[0], ["-" * width for width in widths], *padded[1:]]
    yield from (f"| {' | '.join(row)} |" for row in ruled)


ABOUT = f"Tokens of a page: its characters over {CHARACTERS_A_TOKEN}, a rule of thumb."


def too_few(count: int, what: str) -> Iterator[str]:
    """A warning about intervals over few tasks, where there is one to give."""
    if 0 < count < FEW_TASKS:
        said = f"With {count} of at least {FEW_TASKS} {what}"
        yield f"{said}: an interval that rests on drawing so few again is too narrow."
        yield ""


def arms_table(arms: Sequence[ArmScores]) -> Iterator[str]:
    """A line an arm."""
    head = ("arm", "tasks", "sessions", "solved", "fast_1", "speed-up", "$", "$/session", "tokens/session", "turns")
    yield from table(head, map(_arm, arms))


def _arm(arm: ArmScores) -> tuple[str, ...]:
    unjudged = f" ({arm.sessions - arm.judged} not judged)" if arm.sessions > arm.judged else ""
    dollars = wording.UNKNOWN if arm.dollars is None else f"{arm.dollars:.2f}{' at least' if arm.unpriced else ''}"
    return (
        arm.arm,
        str(arm.tasks),
        f"{arm.sessions}{unjudged}",
        wording.share_score(arm.solved),
        wording.share_score(arm.fast),
        wording.factor_score(arm.speedup),
        dollars,
        wording.plain(arm.dollars_a_session),
        _tokens(arm),
        wording.plain(arm.turns_a_session),
    )


def _tokens(arm: ArmScores) -> str:
    """All tokens of a session, and how many of them the cache gave or took: they cost a fraction of the others."""
    told = wording.plain(arm.tokens_a_session)
    cached = arm.cached_a_session / arm.tokens_a_session if arm.cached_a_session and arm.tokens_a_session else 0.0
    return f"{told} ({wording.share(cached)} cached)" if cached else told


def difference_lines(found: Difference) -> Iterator[str]:
    """What the second arm has more than the first, and which tasks it is in."""
    left_out = f"; {found.unpaired} without a judged sample in both are left out" if found.unpaired else ""
    yield f"`{found.second}` less `{found.first}`, paired over tasks ({found.tasks}){left_out}:"
    yield ""
    counts = f"tasks more often: {found.more}, less often: {found.less}, alike: {found.alike}"
    yield f"- solved: {points(found.solved)}; {counts} (sign test p = {found.solved_p:.3g})"
    yield f"- fast_1: {points(found.fast)}"
    if found.speedup.over:
        factor = wording.factor_score(found.speedup)
        over = f"over {found.speedup.over} tasks (sign test p = {found.speed_p:.3g})"
        yield f"- speed-up: {factor} of what it was, {over}"
    yield f"- dollars a session: {signed(found.dollars)}"
    yield f"- tokens a session: {signed(found.tokens)}"
    yield f"- turns a session: {signed(found.turns)}"
    yield from _flips(found)


def _flips(found: Difference) -> Iterator[str]:
    if not found.flips:
        return
    yield ""
    yield f"Tasks that came out differently ({len(found.flips)}):"
    yield ""
    for flip in found.flips[:SHOWN_FLIPS]:
        counts = [f"{correct} of {judged}" for correct, judged in (flip.first, flip.second)]
        yield f"- {flip.task}: {counts[0]} with `{found.first}`, {counts[1]} with `{found.second}`"
        worse = flip.first_said if flip.first[0] * flip.second[1] < flip.second[0] * flip.first[1] else flip.second_said
        yield f"  {one_line(worse)}"
    if len(found.flips) > SHOWN_FLIPS:
        yield f"- and {len(found.flips) - SHOWN_FLIPS} more"


def ablation_lines(found: Sequence[Ablation]) -> Iterator[str]:
    """Pages by what their absence costs."""
    head = ("without", "solved lost", "+ / - / =", "p", "speed-up lost", "tokens, about", "read in", "reads", "hits")
    yield from table(head, map(_ablation, found))
    yield ""
    yield f"+ / - / =: tasks that are solved less often, more often, as often without the page. {ABOUT}"
    if len(found) > 1:
        yield f"p is of one page alone: of {len(found)} that do nothing {len(found) / 20:.2g} come out below 0.05."


def _ablation(row: Ablation) -> tuple[str, ...]:
    use, found = row.use, row.difference
    speed = wording.factor_score(found.speedup) if found.speedup.over else wording.UNKNOWN
    counts = f"{found.more} / {found.less} / {found.alike}"
    return (use.page, points(found.solved), counts, f"{found.solved_p:.2g}", speed, *_use(use))


def _use(use: PageUse) -> tuple[str, ...]:
    return f"{use.tokens:,}", f"{use.sessions} of {use.of}", str(use.reads), str(use.hits)


def uses_lines(uses: Iterable[PageUse]) -> Iterator[str]:
    """Pages by how often they are read."""
    ordered = sorted(uses, key=lambda use: (-use.reads, -use.hits, use.page))
    used = [use for use in ordered if use.reads or use.hits]
    yield from table(("page", "tokens, about", "read in", "reads", "hits"), ((use.page, *_use(use)) for use in used))
    yield ""
    unused = ", ".join(use.page.removesuffix(".md") for use in ordered if not (use.reads or use.hits))
    yield f"{ABOUT}{f' Neither read nor found: {unused}.' if unused else ''}"


def trigger_lines(scores: TriggerScores) -> Iterator[str]:
    """Precision and recall, and the queries that came out wrong."""
    asked = f"{len(scores.queries)} queries, {scores.answers} answers"
    yield f"{asked}, {scores.right_answers} of them right; {scores.unstable} queries whose repeats disagree"
    yield ""
    rows = (("precision", scores.precision), ("recall", scores.recall), ("left alone rightly", scores.specificity))
    yield from table(("", "queries", "share [95 %]"), ((name, f"{s.count} of {s.of}", share(s)) for name, s in rows))
    wrong = [query for query in scores.queries if not query.right]
    if wrong:
        yield ""
    for query in wrong:
        kind = "missed" if query.should_trigger else "should not"
        instead = f", took {one_line(', '.join(query.others))}" if query.others else ""
        yield f"- {kind} ({query.triggered} of {query.repeats}{instead}): {one_line(query.query)}"


def share(value: Share) -> str:
    """ "90 % [75–100 %]"."""
    return wording.share_score(Score(value=value.value, interval=value.interval))


def points(score: Score) -> str:
    """A difference of shares: "+12.5 points [+3.1 to +20]"."""
    return _difference(score, lambda value: f"{round(100 * value, 1):+g}", " points")


def signed(score: Score) -> str:
    """A difference of numbers: "+1,250 [-30 to +2,100]"."""
    return _difference(score, lambda value: f"{'+' if value >= 0 else ''}{wording.plain(value)}", "")


def _difference(score: Score, shown: Callable[[float], str], unit: str) -> str:
    if score.value is None:
        return wording.UNKNOWN
    bounds = f" [{shown(score.interval[0])} to {shown(score.interval[1])}]" if score.interval else ""
    return f"{shown(score.value)}{unit}{bounds}"

"""Precision and recall of a skill's description, from answers to queries that should and should not trigger it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

from cutesmith.evals.scores.bootstrap import LEVEL, Interval
from cutesmith.evals.skill_trials.triggers import Answer

THRESHOLD = 0.5
"""A query triggers the skill when at least this share of its repeats does, as in skill-creator's run_eval.py."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """So many of so many, with Wilson's 95 % interval; None of none."""

    count: int
    of: int
    value: float | None
    interval: Interval | None


@dataclass(frozen=True, kw_only=True)
class QueryResult:
    """One query: in how many of its repeats the skill was loaded, and what was loaded instead."""

    query: str
    should_trigger: bool
    triggered: int
    repeats: int
    others: tuple[str, ...]

    @property
    def triggers(self) -> bool:
        """Whether it counts as triggering."""
        return self.triggered >= THRESHOLD * self.repeats

    @property
    def right(self) -> bool:
        """Whether that is as it should be."""
        return self.triggers == self.should_trigger


@dataclass(frozen=True, kw_only=True)
class TriggerScores:
    """Each query counts once, by its repeats together: repeats of one query are no independent samples.

    `answers` triggered wrongly or rightly, counted one by one; `unstable` queries whose repeats disagree.
    """

    precision: Share
    recall: Share
    specificity: Share
    right_answers: int
    answers: int
    unstable: int
    dollars: float | None
    queries: tuple[QueryResult, ...]


def trigger_scores(answers: Iterable[Answer]) -> TriggerScores:
    """The scores of some answers."""
    answers = list(answers)
    queries = tuple(_results(answers))
    should = [query for query in queries if query.should_trigger]
    should_not = [query for query in queries if not query.should_trigger]
    hits, chosen = sum(query.triggers for query in should), sum(query.triggers for query in queries)
    prices = [answer.dollars for answer in answers if answer.dollars is not None]
    return TriggerScores(
        precision=share_of(hits, chosen),
        recall=share_of(hits, len(should)),
        specificity=share_of(sum(query.right for query in should_not), len(should_not)),
        right_answers=sum(answer.triggered == answer.should_trigger for answer in answers),
        answers=len(answers),
        unstable=sum(0 < query.triggered < query.repeats for query in queries),
        dollars=sum(prices) if prices else None,
        queries=queries,
    )


def _results(answers: list[Answer]) -> Iterable[QueryResult]:
    for query in dict.fromkeys(answer.query for answer in answers):
        own = [answer for answer in answers if answer.query == query]
        others = {name for answer in own if not answer.triggered for name in answer.loaded}
        yield QueryResult(
            query=query,
            should_trigger=own[0].should_trigger,
            triggered=sum(answer.triggered for answer in own),
            repeats=len(own),
            others=tuple(sorted(others)),
        )


def share_of(count: int, of: int) -> Share:
    """A share with Wilson's interval: E. B. Wilson, JASA 22 (1927)."""
    if not of:
        return Share(count=count, of=of, value=None, interval=None)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, scale = count / of, 1 + z * z / of
    middle = (share + z * z / (2 * of)) / scale
    reach = z / scale * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return Share(count=count, of=of, value=share, interval=(max(0.0, middle - reach), min(1.0, middle + reach)))

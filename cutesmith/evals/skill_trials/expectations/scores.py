"""Pass rates of expectations with and without the skill, and the differences: a session's, then an evaluation's.

What is undecided counts as not passed, and is counted beside; the interval of a difference reaches over both ways in
which it may come out, so that a grader that does not know makes no difference sure. Two shares of one expectation are
independent samples: Newcombe, "Interval estimation for the difference between independent proportions", Statistics in
Medicine 17 (1998), method 10. Over all, evaluations are drawn again in pairs, their repeats kept together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from cutesmith.evals.scores.bootstrap import Interval
from cutesmith.evals.scores.summaries import Score, of_share, score_of_tasks
from cutesmith.evals.skill_trials.expectations.checks import WAY
from cutesmith.evals.skill_trials.expectations.grading import Grade, Grading
from cutesmith.evals.skill_trials.expectations.model_grader import PASSED, UNDECIDED
from cutesmith.evals.skill_trials.measuring import difference_of_shares
from cutesmith.evals.skill_trials.trial import BARE, WITH
from cutesmith.evals.skill_trials.trigger_scores import Share, share_of


@dataclass(frozen=True, kw_only=True)
class Graded:
    """One session's grades: which evaluation, arm and repeat, and what the session and its grading took."""

    eval: int
    arm: str
    repeat: int
    grading: Grading
    dollars: float | None
    tokens: int
    turns: int
    ending: str


@dataclass(frozen=True, kw_only=True)
class ExpectationRates:
    """One expectation: in how many sessions of each arm it passed, and with less without the skill.

    `decided_by`: result, way, model, nobody; `undecided` by arm. `difference` None without both arms.
    """

    eval: int
    text: str
    decided_by: tuple[str, ...]
    passed: Mapping[str, Share]
    undecided: Mapping[str, int]
    difference: Score | None


@dataclass(frozen=True, kw_only=True)
class Overall:
    """Some expectations over all evaluations: each arm's mean share, and the paired difference."""

    evals: int
    arms: Mapping[str, Score]
    difference: Score | None


@dataclass(frozen=True, kw_only=True)
class ArmCosts:
    """What an arm's sessions took; `dollars` without their grading."""

    arm: str
    sessions: int
    dollars: float
    tokens_a_session: float
    turns_a_session: float
    cut_short: int


@dataclass(frozen=True, kw_only=True)
class ExpectationScores:
    """All of it; `without_ways` leaves out what only says how the agent went about it."""

    rates: tuple[ExpectationRates, ...]
    all: Overall
    without_ways: Overall
    costs: tuple[ArmCosts, ...]
    undecided: int
    grades: int
    grading_dollars: float


def expectation_scores(sessions: Iterable[Graded]) -> ExpectationScores:
    """The scores of some sessions."""
    sessions = sorted(sessions, key=lambda one: (one.eval, one.arm, one.repeat))
    grades = [grade for session in sessions for grade in session.grading.grades]
    return ExpectationScores(
        rates=tuple(_rates(sessions)),
        all=_overall(sessions, lambda grade: True),
        without_ways=_overall(sessions, lambda grade: grade.decided_by != WAY),
        costs=tuple(_costs(sessions)),
        undecided=sum(grade.verdict == UNDECIDED for grade in grades),
        grades=len(grades),
        grading_dollars=sum(session.grading.dollars or 0.0 for session in sessions),
    )


def _arms(sessions: Sequence[Graded]) -> list[str]:
    there = {session.arm for session in sessions}
    return [arm for arm in (WITH, BARE) if arm in there]


def _rates(sessions: Sequence[Graded]) -> Iterable[ExpectationRates]:
    pairs = [(session.eval, grade.text) for session in sessions for grade in session.grading.grades]
    for number, text in dict.fromkeys(pairs):
        grades = {
            arm: [grade for one in sessions if (one.eval, one.arm) == (number, arm) for grade in _of(one, text)]
            for arm in _arms(sessions)
        }
        passed = {arm: share_of(_passed(found), len(found)) for arm, found in grades.items()}
        yield ExpectationRates(
            eval=number,
            text=text,
            decided_by=tuple(sorted({grade.decided_by for found in grades.values() for grade in found})),
            passed=passed,
            undecided={arm: sum(grade.verdict == UNDECIDED for grade in found) for arm, found in grades.items()},
            difference=_difference(grades[WITH], grades[BARE]) if {WITH, BARE} <= grades.keys() else None,
        )


def _of(session: Graded, text: str) -> list[Grade]:
    return [grade for grade in session.grading.grades if grade.text == text]


def _passed(grades: Iterable[Grade], also: str = PASSED) -> int:
    """How many passed; `also` UNDECIDED counts those too."""
    return sum(grade.verdict in (PASSED, also) for grade in grades)


def _difference(whole: Sequence[Grade], bare: Sequence[Grade]) -> Score | None:
    """The share that passes with the skill less that without it; None where either has no grade."""
    if not whole or not bare:
        return None
    least = _newcombe(share_of(_passed(whole), len(whole)), share_of(_passed(bare, UNDECIDED), len(bare)))
    most = _newcombe(share_of(_passed(whole, UNDECIDED), len(whole)), share_of(_passed(bare), len(bare)))
    value = _passed(whole) / len(whole) - _passed(bare) / len(bare)
    return Score(value=value, interval=(least[0], most[1]), over=min(len(whole), len(bare)))


def _newcombe(first: Share, second: Share) -> Interval:
    """The interval of the first share less the second; both are of something."""
    assert first.value is not None and second.value is not None and first.interval and second.interval
    difference = first.value - second.value
    below = math.hypot(first.value - first.interval[0], second.interval[1] - second.value)
    above = math.hypot(first.interval[1] - first.value, second.value - second.interval[0])
    return difference - below, difference + above


def _overall(sessions: Sequence[Graded], counts: Callable[[Grade], bool]) -> Overall:
    shares = {arm: _shares(sessions, arm, counts) for arm in _arms(sessions)}
    return Overall(
        evals=len(set().union(*shares.values())),
        arms={arm: of_share(score_of_tasks(np.array(list(known.values())), "evals")) for arm, known in shares.items()},
        difference=_paired(sessions, counts) if {WITH, BARE} <= shares.keys() else None,
    )


def _paired(sessions: Sequence[Graded], counts: Callable[[Grade], bool]) -> Score | None:
    """The mean difference over the evaluations that both arms have; None without any."""
    score, least, most = (
        difference_of_shares(_gains(_shares(sessions, WITH, counts, whole), _shares(sessions, BARE, counts, bare)))
        for whole, bare in ((PASSED, PASSED), (PASSED, UNDECIDED), (UNDECIDED, PASSED))
    )
    if score.interval is None or least.interval is None or most.interval is None:
        return None
    return replace(score, interval=(least.interval[0], most.interval[1]))


def _gains(whole: Mapping[int, float], bare: Mapping[int, float]) -> list[float]:
    return [whole[number] - bare[number] for number in sorted(whole.keys() & bare.keys())]


def _shares(
    sessions: Sequence[Graded], arm: str, counts: Callable[[Grade], bool], also: str = PASSED
) -> dict[int, float]:
    """The share of expectations that an evaluation's sessions pass, a mean over its repeats."""
    found: dict[int, list[float]] = {}
    for session in sessions:
        grades = [grade for grade in session.grading.grades if counts(grade)]
        if session.arm == arm and grades:
            found.setdefault(session.eval, []).append(_passed(grades, also) / len(grades))
    return {number: fmean(values) for number, values in found.items()}


def _costs(sessions: Sequence[Graded]) -> Iterable[ArmCosts]:
    for arm in _arms(sessions):
        own = [session for session in sessions if session.arm == arm]
        yield ArmCosts(
            arm=arm,
            sessions=len(own),
            dollars=sum(session.dollars or 0.0 for session in own),
            tokens_a_session=fmean(session.tokens for session in own),
            turns_a_session=fmean(session.turns for session in own),
            cut_short=sum(session.ending != "answered" for session in own),
        )

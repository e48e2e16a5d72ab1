"""Pass rates of expectations by hand: repeats within their evaluation, and what is undecided makes nothing sure."""

from __future__ import annotations

import pytest

from cutesmith.evals.skill_trials.expectations.grading import Grade, Grading
from cutesmith.evals.skill_trials.expectations.report import html, markdown
from cutesmith.evals.skill_trials.expectations.scores import Graded, expectation_scores

P, F, U = "passed", "failed", "undecided"


def session(number, arm, repeat, *verdicts, by=("result", "way", "model"), ending="answered"):
    grades = tuple(
        Grade(text=f"{number}{place}", verdict=verdict, decided_by=who, evidence="")
        for place, (verdict, who) in enumerate(zip(verdicts, by))
    )
    grading = Grading(grades=grades, key="k", dollars=0.1)
    about = {"dollars": 0.2, "tokens": 100 * (repeat + 1), "turns": 4, "ending": ending}
    return Graded(eval=number, arm=arm, repeat=repeat, grading=grading, **about)


def test_rates_and_differences_by_hand():
    sessions = [session(1, "with", r, P, P) for r in range(3)] + [session(1, "bare", r, P, F) for r in range(3)]
    sessions += [session(2, "with", 0, P), session(2, "bare", 0, F, ending="limit")]
    scores = expectation_scores(sessions)
    first, second, third = scores.rates
    assert (first.eval, first.text, first.decided_by) == (1, "10", ("result",)) and first.difference.value == 0.0
    assert (second.passed["with"].count, second.passed["bare"].count, second.passed["bare"].of) == (3, 0, 3)
    # Newcombe's method 10 for 3 of 3 against 0 of 3: 1 - sqrt(2 (1 - 0.4385)^2); Wilson's bound of 3 of 3 is 0.4385
    assert second.difference.interval == pytest.approx((1 - 2**0.5 * 0.5615, 1.0), abs=1e-4)
    assert third.difference.value == 1.0
    assert scores.all.evals == 2 and scores.all.arms["with"].value == 1.0 and scores.all.arms["bare"].value == 0.25
    assert scores.all.difference.value == pytest.approx((0.5 + 1.0) / 2)
    assert scores.without_ways.difference.value == pytest.approx((0.0 + 1.0) / 2)
    assert [(cost.arm, cost.sessions, cost.cut_short) for cost in scores.costs] == [("with", 4, 0), ("bare", 4, 1)]
    assert scores.grading_dollars == pytest.approx(0.8)


def test_more_repeats_of_one_evaluation_are_no_more_evaluations():
    few = [session(1, arm, r, verdict) for arm, verdict in (("with", P), ("bare", F)) for r in range(3)]
    many = [session(1, arm, r, verdict) for arm, verdict in (("with", P), ("bare", F)) for r in range(30)]
    assert expectation_scores(few).all.difference == expectation_scores(many).all.difference
    wide, narrow = (expectation_scores(one).rates[0].difference.interval for one in (few, many))
    assert narrow[0] > wide[0]


def test_what_is_undecided_passes_nothing_and_makes_no_difference_sure():
    known = [
        session(n, arm, r, P if arm == "with" else F) for n in range(1, 13) for arm in ("with", "bare") for r in (0, 1)
    ]
    assert expectation_scores(known).all.difference.interval[0] > 0
    unknown = [
        session(n, arm, r, P if arm == "with" else U) for n in range(1, 13) for arm in ("with", "bare") for r in (0, 1)
    ]
    scores = expectation_scores(unknown)
    assert scores.undecided == 24 and scores.rates[0].undecided == {"with": 0, "bare": 2}
    assert scores.rates[0].passed["bare"].count == 0
    assert scores.all.difference.value == 1.0 and scores.all.difference.interval[0] < 0
    assert scores.rates[0].difference.interval[0] < 0


def test_one_arm_alone_has_rates_and_no_difference():
    scores = expectation_scores([session(1, "with", 0, P, F, U)])
    assert scores.all.difference is None and [rates.difference for rates in scores.rates] == [None] * 3
    text = "\n".join(markdown(scores, 1))
    assert "1 of at least 3 repeats" in text and "1 of 3 undecided" in text and "(1 undecided)" in text
    assert expectation_scores([]).rates == ()
    assert list(markdown(expectation_scores([]), 3))[-1] == "No session is graded yet."


def test_the_page_draws_the_differences_and_runs_nothing():
    sessions = [session(1, "with", 0, P), session(1, "bare", 0, F)]
    page = html(expectation_scores(sessions), 3)
    assert page.count("<circle") == 3 and "<script" not in page and "default-src 'none'" in page

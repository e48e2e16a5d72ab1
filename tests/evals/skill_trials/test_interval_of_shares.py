"""The interval of a difference of shares: no sure thing from a few tasks that happen to agree."""

from __future__ import annotations

import pytest

from cutesmith.evals.scores.summaries import Score, of_share
from cutesmith.evals.skill_trials.measuring import difference, difference_of_shares, read_arm
from tests.evals.sample_attempts import attempt, wrong
from tests.evals.skill_trials.trials import trial, write_arm


@pytest.mark.parametrize(("tasks", "sure"), [(1, False), (2, False), (3, False), (6, True), (20, True)])
def test_a_few_tasks_that_agree_do_not_exclude_no_difference(tasks, sure):
    score = difference_of_shares([1.0] * tasks)
    assert score.value == 1.0 and score.interval[1] == 1.0
    assert (score.interval[0] > 0) is sure


def test_no_difference_anywhere_reaches_as_far_to_both_sides():
    low, high = difference_of_shares([0.0] * 8).interval
    assert low == pytest.approx(-high) and high == pytest.approx(3.8415 / 11.8415, abs=1e-4)


def test_tasks_that_differ_are_drawn_again_and_those_without_a_value_left_out():
    score = difference_of_shares([1.0, 0.0, 0.0, 1.0, float("nan")])
    assert score.over == 4 and score.value == 0.5 and score.interval == (0.0, 1.0)
    assert difference_of_shares([]).value is None


def test_tasks_that_all_have_the_same_share_do_not_make_it_certain():
    known = of_share(Score(value=2 / 3, interval=(2 / 3, 2 / 3), over=2))
    slack = 3.8415 / 5.8415
    assert known.interval == pytest.approx((2 / 3 * (1 - slack), 2 / 3 + slack / 3), abs=1e-4)
    varied = Score(value=0.5, interval=(0.25, 0.75), over=4)
    assert of_share(varied) == varied and of_share(Score(value=None)).interval is None


def test_what_went_wrong_is_told_of_an_arm_that_sometimes_succeeds(tmp_path):
    write_arm(tmp_path, "with", *[[attempt("one", 2.0)]] * 2)
    write_arm(tmp_path, "bare", [attempt("one", 2.0)], [wrong("one")])
    (flip,) = difference(*(read_arm(trial(repeats=2), tmp_path, arm) for arm in ("bare", "with"))).flips
    assert flip.first == (1, 2) and flip.first_said.startswith("verify: wrong_result")
    assert flip.second_said.startswith("benchmark: passed")

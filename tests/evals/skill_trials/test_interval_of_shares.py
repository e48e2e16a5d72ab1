"""The interval of a difference of shares: no sure thing from a few tasks that happen to agree."""

from __future__ import annotations

import pytest

from cutesmith.evals.skill_trials.measuring import difference_of_shares


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

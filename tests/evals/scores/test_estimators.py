"""The formulas against enumeration and hand-computed numbers; the drawn medians against drawing every sample."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest

from cutesmith.evals.scores.estimators import (
    best_at_k,
    generator,
    interval,
    is_fast,
    nan_mean,
    nan_median,
    pass_at_k,
    resampled_medians,
    sign_test,
)
from cutesmith.evals.scores.summaries import Score, of_share


@pytest.mark.parametrize(("samples", "correct"), [(5, 0), (5, 2), (6, 5), (4, 4), (1, 1)])
def test_pass_at_k_is_the_share_of_all_draws_that_hold_a_correct_sample(samples, correct):
    flags = [True] * correct + [False] * (samples - correct)
    for k in range(1, samples + 1):
        draws = [any(draw) for draw in itertools.combinations(flags, k)]
        assert pass_at_k(samples, correct, k) == pytest.approx(sum(draws) / len(draws))


def test_best_at_k_is_the_mean_of_the_largest_over_all_draws():
    values = [1.0, 3.5, 0.25, 3.5, 2.0]
    for k in range(1, 6):
        expected = statistics.fmean(max(draw) for draw in itertools.combinations(values, k))
        assert best_at_k(values, k) == pytest.approx(expected)


@pytest.mark.parametrize("arguments", [(3, 4, 1), (3, 1, 4), (3, 1, 0), (3, -1, 1)])
def test_impossible_counts_are_refused(arguments):
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(*arguments)


def test_fast_is_strict_and_an_untimed_kernel_is_fast_for_no_p_but_0():
    speedups = np.array([0.0, 1.0, math.nan, 2.0])
    assert is_fast(speedups, 0.0).tolist() == [False, True, True, True]
    assert is_fast(speedups, 1.0).tolist() == [False, False, False, True]
    assert is_fast(speedups, 2.0).tolist() == [False] * 4


def test_a_sign_test_counts_the_outcomes_of_a_fair_coin():
    for above, below in ((0, 0), (1, 0), (5, 1), (3, 3), (8, 0)):
        flips = list(itertools.product((0, 1), repeat=above + below))
        extreme = [f for f in flips if abs(sum(f) - (above + below) / 2) >= abs(above - below) / 2]
        assert sign_test(above, below) == sign_test(below, above) == pytest.approx(len(extreme) / len(flips))


def test_means_and_medians_leave_out_what_is_no_number():
    values = np.array([[1.0, math.nan, 3.0, 10.0], [math.nan] * 4, [math.nan, 2.0, 4.0, math.nan]])
    assert nan_median(values).tolist()[::2] == [3.0, 3.0] and math.isnan(nan_median(values)[1])
    assert nan_mean(values).tolist()[::2] == pytest.approx([14 / 3, 3.0]) and math.isnan(nan_mean(values)[1])
    assert nan_mean(np.array([[1.0], [math.nan]]), axis=0).tolist() == [1.0]


@pytest.mark.parametrize("count", [1, 2, 7, 12])
def test_drawn_medians_have_the_distribution_of_medians_of_drawn_samples(count):
    samples = np.random.default_rng(count).lognormal(0.0, 0.5, count)
    shortcut = resampled_medians(samples, np.random.default_rng(0), 40_000)
    drawn = np.median(np.random.default_rng(1).choice(samples, (40_000, count)), axis=1)
    assert shortcut.mean() == pytest.approx(drawn.mean(), rel=0.01)
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        own, other = (np.mean(values <= np.quantile(drawn, level)) for values in (shortcut, drawn))
        assert own == pytest.approx(other, abs=0.015), level


def test_random_numbers_depend_on_the_names_and_on_nothing_else():
    first, again, other = (generator(*names).random() for names in (("a", "b"), ("a", "b"), ("ab",)))
    assert first == again != other


def test_an_interval_needs_a_number():
    assert interval(np.array([math.nan, math.nan])) is None
    assert interval(np.append(np.arange(1001.0), math.nan)) == pytest.approx((25.0, 975.0))


def test_tasks_that_all_have_the_same_share_do_not_make_it_certain():
    known = of_share(Score(value=2 / 3, interval=(2 / 3, 2 / 3), over=2))
    slack = 3.8415 / 5.8415
    assert known.interval == pytest.approx((2 / 3 * (1 - slack), 2 / 3 + slack / 3), abs=1e-4)
    varied = Score(value=0.5, interval=(0.25, 0.75), over=4)
    assert of_share(varied) == varied and of_share(Score(value=None)).interval is None

"""Scores of whole runs: by hand, in any order, and with a treatment for everything that did not run."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from cutesmith.evals.reading import PlannedTask
from cutesmith.evals.records import COMPILED, EAGER, KERNEL, LIBRARY, Cost, Timing
from cutesmith.evals.scores.costs import costs_of
from cutesmith.evals.scores.estimators import THRESHOLDS
from cutesmith.evals.scores.matrices import fast_curve
from cutesmith.evals.scores.outcomes import FASTEST, Outcome
from cutesmith.evals.scores.scorecard import run_scorecards
from tests.evals.sample_attempts import attempt, noisy, run, unjudged, wrong


def whole(attempts, planned=()):
    return run_scorecards(run(attempts, planned))["all"][0]


def fast(card, baseline=EAGER):
    return [card.against[baseline].fast[p].value for p in THRESHOLDS]


def test_five_tasks_by_hand():
    card = whole([attempt("a", 0.7), attempt("b", 1.0), attempt("c", 1.8), attempt("d"), wrong("e")])
    assert fast(card) == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.2, 0.0])
    against = card.against[EAGER]
    assert against.geometric_mean.value == pytest.approx((0.7 * 1.0 * 1.8) ** (1 / 3)) and against.median.value == 1.0
    assert (against.geometric_mean.over, against.tasks, against.untimed, against.outside) == (3, 5, 1, 0)
    assert card.correct.value == 0.8 and card.states == {"timed": 3, "untimed": 1, "failed": 1}


def test_what_did_not_run_stays_in_the_denominator():
    card = whole([attempt("a", 2.5), unjudged("b")], planned=["a", "b", "c", "d"])
    assert card.states == {"timed": 1, "unjudged": 1, "not attempted": 2} and card.judged == 1
    assert fast(card) == [0.25] * 6 and card.pass_at[1].value == 0.25 and card.pass_at[1].over == 4


def test_an_unjudged_sample_is_no_failed_one():
    card = whole([attempt("a", 2.0), unjudged("a", sample=1), wrong("a", sample=2)])
    assert card.correct.value == 0.5 and card.samples == {"timed": 1, "unjudged": 1, "failed": 1}


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"exit_code": 8, "correct": True}, "rejected"),
        ({"exit_code": 7, "correct": True}, "timed"),
        ({"exit_code": 6, "correct": False}, "failed"),
        ({"exit_code": 9, "correct": False}, "unjudged"),
        ({"exit_code": 0, "correct": False, "ran_on": "compile"}, "unjudged"),
        ({"timings": {KERNEL: Timing(error="out of memory")}}, "untimed"),
    ],
)
def test_every_ending_has_its_outcome(fields, outcome):
    assert Outcome.of(attempt("a", 2.0, **fields)).outcome == outcome


def test_numbers_come_from_the_samples_not_from_what_was_rounded_and_a_median_alone_counts_as_one_sample():
    rounded = {KERNEL: Timing(samples_us=(1.0, 2.0, 4.0), median_us=3.0), EAGER: Timing(samples_us=(3.0,), median_us=9)}
    assert Outcome.of(attempt("a", timings=rounded)).speedup(EAGER) == 1.5
    alone = {KERNEL: Timing(median_us=10.0), EAGER: Timing(samples_us=(15.0, 25.0, 20.0))}
    assert Outcome.of(attempt("a", timings=alone)).speedup(EAGER) == 2.0


QUACK = ("quack.py:softmax",)


def planned(**libraries):
    return [PlannedTask(id=task, libraries=named) for task, named in libraries.items()]


SOLVED_OR_NOT = [attempt("has", {EAGER: 2.0, LIBRARY: 1.2}), attempt("has_none", {EAGER: 3.0}), wrong("open")]
SOLVED_OR_NOT += [wrong("open_none"), attempt("untimed_none")]
SAID = planned(has=QUACK, has_none=(), open=QUACK, open_none=(), untimed_none=(), never=QUACK, never_none=())


def test_a_task_that_no_library_computes_is_outside_that_denominator_solved_or_not():
    card = whole(SOLVED_OR_NOT, SAID)
    library = card.against[LIBRARY]  # one of "has", "open" and "never" is solved, 1.2 times as fast
    assert (library.tasks, library.outside, library.untimed) == (3, 4, 0)
    assert fast(card, LIBRARY) == pytest.approx([1 / 3] * 4 + [0.0] * 2)
    assert library.geometric_mean.value == pytest.approx(1.2) and library.geometric_mean.over == 1
    for every in (EAGER, FASTEST):
        assert (card.against[every].tasks, card.against[every].outside) == (7, 0)
    assert fast(card, FASTEST) == pytest.approx([3 / 7] + [2 / 7] * 3 + [1 / 7] * 2)
    curve = fast_curve(run(SOLVED_OR_NOT, SAID).tasks, LIBRARY, np.array([1.0]), "x")
    assert curve.tasks == 3 and curve.share == pytest.approx([1 / 3])


def test_where_a_run_does_not_say_which_tasks_have_a_library_timed_kernels_do():
    card = whole(SOLVED_OR_NOT, [task.id for task in SAID])
    library = card.against[LIBRARY]
    assert (library.tasks, library.outside) == (6, 1)
    assert fast(card, LIBRARY) == pytest.approx([2 / 6] + [1 / 6] * 3 + [0] * 2)


def test_a_library_counts_if_it_was_timed_whatever_run_json_says_and_only_then():
    card = whole([attempt("a", {EAGER: 2.0, LIBRARY: 1.2})], planned(a=()))
    assert (card.against[LIBRARY].tasks, fast(card, LIBRARY)[3]) == (1, 1.0)
    card = whole([attempt("a", 2.0), wrong("b")], planned(a=QUACK, b=()))
    assert list(card.against) == [EAGER] and card.against[EAGER].tasks == 2


def test_a_baseline_that_failed_leaves_the_kernel_correct_and_not_fast():
    timings = {KERNEL: Timing(samples_us=(10.0,)), EAGER: Timing(samples_us=(20.0,))}
    timings[COMPILED] = Timing(error="does not trace")
    card = whole([attempt("a", timings=timings), attempt("b", {EAGER: 2.0, COMPILED: 1.5})])
    compiled = card.against[COMPILED]
    assert (compiled.tasks, compiled.untimed, compiled.outside) == (2, 1, 0) and fast(card, COMPILED)[0] == 1.0
    assert fast(card, COMPILED)[3] == 0.5


def test_the_fastest_baseline_is_the_fastest_of_each_kernels_own():
    card = whole([attempt("a", {EAGER: 2.0, COMPILED: 1.2}), attempt("b", {EAGER: 0.9, COMPILED: 1.4})])
    assert card.against[FASTEST].geometric_mean.value == pytest.approx(math.sqrt(1.2 * 0.9))


def test_several_samples_give_pass_at_k_and_best_at_k():
    attempts = [attempt("a", 4.0), wrong("a", sample=1), attempt("b", 0.5), attempt("b", 2.0, sample=1), wrong("c")]
    card = whole(attempts)
    assert card.pass_at[1].value == pytest.approx((0.5 + 1 + 0) / 3) and card.pass_at[2].over == 2
    assert card.pass_at[2].value == 1.0
    assert card.best_at[1].value == pytest.approx((4.0**0.5 * 2.0**0.5 * 1.0) ** (1 / 3))
    assert card.best_at[2].value == pytest.approx((4.0 * 2.0) ** (1 / 2))
    assert fast(card)[3] == pytest.approx((0.5 + 0.5 + 0) / 3)


def mixed(seed):
    draws = random.Random(seed)
    for place in range(12):
        kind = draws.random()
        tags = tuple(draws.sample(["x", "y", "z"], draws.randint(0, 2)))
        named = {"level": 1 + place % 2, "tags": tags, "dtypes": ("float16",)}
        for sample in range(draws.randint(1, 3)):
            if kind < 0.3:
                yield wrong(f"t{place}", sample=sample, **named)
            else:
                yield noisy(f"t{place}", draws.lognormvariate(0, 0.7), sample, sample=sample, **named)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_results_changes_nothing_and_fast_0_is_correctness(seed):
    attempts = list(mixed(seed))
    cards = run_scorecards(run(attempts))
    random.Random(seed).shuffle(attempts)
    assert run_scorecards(run(attempts)) == cards
    assert {card.name for card in cards["level"]} == {"level 1", "level 2"} and cards["dtype"][0].tasks == 12
    for card in (card for group in cards.values() for card in group):
        shares = fast(card)
        assert shares == sorted(shares, reverse=True) and shares[0] == card.correct.value == card.pass_at[1].value
        for score in card.against[EAGER].fast.values():
            assert score.interval[0] <= score.value <= score.interval[1]


def test_a_result_that_was_made_again_replaces_the_older_one_wherever_it_stands():
    old, new = attempt("a", 1.5, finished="2026-01-01"), attempt("a", 3.0, finished="2026-01-02")
    for order in ((old, new), (new, old)):
        made = run(order)
        assert made.superseded == 1 and made.tasks[0].speedups(EAGER).tolist() == [3.0]


def test_shares_of_nothing_but_failures_or_wins_are_not_called_certain():
    card = whole([attempt(name, 2.0) for name in "abcdefghij"])
    low, high = card.correct.interval
    assert (low, high) == (pytest.approx(0.7225, abs=1e-3), 1.0)  # Wilson, 10 of 10


@pytest.mark.slow
def test_the_interval_of_the_geometric_mean_covers_the_truth_about_as_often_as_it_says():
    draws, covered, trials = np.random.default_rng(5), 0, 80
    for trial in range(trials):
        factors = np.exp(draws.normal(0.3, 0.4, 25))
        made = [noisy(f"t{place}", factor, trial * 25 + place, 10) for place, factor in enumerate(factors)]
        low, high = whole(made).against[EAGER].geometric_mean.interval
        covered += low <= math.exp(0.3) <= high
    assert 0.86 <= covered / trials <= 0.99  # percentile intervals of 25 tasks are a little narrow


def test_timing_noise_widens_the_interval_where_tasks_are_equal():
    def width(spread):
        made = [noisy(f"t{place}", 2.0, place, 9, spread) for place in range(8)]
        low, high = whole(made).against[EAGER].geometric_mean.interval
        return high - low

    assert width(0.0) < 1e-6 < width(0.02) < width(0.2)


def test_the_curve_goes_through_fast_p_and_its_band_holds_it():
    made = run(mixed(1))
    p = np.array([value for value in THRESHOLDS if value])
    curve = fast_curve(made.tasks, EAGER, p, made.name)
    assert curve.share.tolist() == pytest.approx(fast(run_scorecards(made)["all"][0])[1:])
    assert (curve.low <= curve.share).all() and (curve.share <= curve.high).all()


def test_a_run_in_which_nothing_was_judged_has_scores():
    assert whole([], planned=["a"]).correct.value == 0.0
    empty = whole([])
    assert empty.tasks == 0 and empty.correct.value is None and empty.against == {}
    curve = fast_curve(run([unjudged("a")]).tasks, EAGER, np.array([1.0]), "")
    assert curve.share.tolist() == [0.0] and curve.tasks == 1


def test_a_win_pays_for_the_attempts_that_failed_and_not_for_waiting():
    waited = {"queued": 999.0, "check": 120.0, "compiler": 60.0}  # the compiler's share lies within the check
    made = [
        attempt("a", 2.0, cost=Cost(dollars=0.3, input_tokens=700, output_tokens=300), seconds={"verify": 60.0}),
        wrong("b", cost=Cost(dollars=0.5, input_tokens=1000), seconds=waited),
        wrong("c", cost=Cost(input_tokens=5)),
    ]
    costs = costs_of(run(made))
    assert (costs.wins, costs.dollars, costs.tokens, costs.minutes, costs.unpriced) == (1, 0.8, 2005, 3.0, 1)
    assert costs.per_win(costs.dollars) == 0.8 and costs_of(run([wrong("b")])).per_win(1.0) is None

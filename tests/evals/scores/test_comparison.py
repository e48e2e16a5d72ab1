"""Two runs and many: what flipped, what changed beyond noise, which places are shared."""

from __future__ import annotations

import pytest

from cutesmith.evals.scores.comparison import compare_runs
from cutesmith.evals.scores.ranking import rank
from tests.evals.sample_attempts import H200, attempt, noisy, run, unjudged, wrong


def test_flips_are_named_with_both_verdicts():
    before = run(
        [attempt("a", 2.0), wrong("b", summary="2 elements differ"), attempt("c", 1.0), wrong("d"), wrong("x")]
    )
    after = run([unjudged("a", summary="no GPU"), attempt("b", 1.0), attempt("c", 1.0), wrong("d"), wrong("y")])
    found = compare_runs(before, after)
    assert (found.tasks, found.only_first, found.only_second) == (4, 1, 1)
    assert found.solved == {"both": 1, "first": 1, "second": 1, "neither": 1} and found.solved_p == 1.0
    lost, gained = found.flips
    assert (lost.task, lost.gained, lost.after) == ("a", False, "verify: unavailable: no GPU")
    assert (gained.task, gained.gained, gained.before) == ("b", True, "verify: wrong_result: 2 elements differ")
    assert found.share.value == 0.0


def test_only_what_is_beyond_noise_is_called_a_change():
    speeds = {"faster": 1.2, "hardly": 1.02, "slower": 0.8, "same": 1.0}
    before = run([noisy(task, 2.0, 1, 60, 0.005, key=f"1{task}") for task in speeds])
    after = run([noisy(task, 2.0 * change, 2, 60, 0.005, key=f"2{task}") for task, change in speeds.items()])
    found = compare_runs(before, after)
    sure = {change.task: change.ratio for change in found.changes if change.beyond_noise}
    assert sure == {"faster": pytest.approx(1.2, rel=0.02), "slower": pytest.approx(0.8, rel=0.02)}
    for change in found.changes:
        assert change.interval[0] < change.ratio < change.interval[1]
    scattered = run([noisy(task, 2.4, 3, 8, 0.5, key=f"3{task}") for task in speeds])
    assert not any(change.beyond_noise for change in compare_runs(before, scattered).changes if change.ratio < 1.2)


def test_the_ratio_is_a_geometric_mean_over_tasks_that_both_timed():
    before = run([attempt("a", 1.0), attempt("b", 2.0), attempt("c", 5.0), wrong("d")])
    after = run([attempt("a", 2.0), attempt("b", 2.0), attempt("c"), attempt("d", 9.0)])
    found = compare_runs(before, after)
    assert found.speed.value == pytest.approx(2.0**0.5) and found.speed.over == 2 and found.speed_p == 1.0
    backwards = compare_runs(after, before)
    assert backwards.speed.value == pytest.approx(0.5**0.5)


def test_a_run_does_not_differ_from_itself():
    made = run([noisy(name, 1.5, place) for place, name in enumerate("abcdef")])
    found = compare_runs(made, made)
    assert found.speed.value == 1.0 and found.speed.interval[0] < 1.0 < found.speed.interval[1]
    assert not found.flips and not found.different and not any(change.beyond_noise for change in found.changes)


@pytest.mark.parametrize(("tasks", "sure"), [(1, False), (2, False), (3, False), (6, True), (20, True)])
def test_a_few_tasks_that_agree_do_not_exclude_no_difference(tasks, sure):
    names = [f"t{place}" for place in range(tasks)]
    share = compare_runs(run([wrong(name) for name in names]), run([attempt(name, 1.0) for name in names])).share
    assert share.value == 1.0 and share.interval[1] == 1.0
    assert (share.interval[0] > 0) is sure


def test_no_difference_anywhere_reaches_as_far_to_both_sides():
    made = run([attempt(name, 1.0) for name in "abcdefgh"])
    low, high = compare_runs(made, made).share.interval
    assert low == pytest.approx(-high) and high == pytest.approx(3.8415 / 11.8415, abs=1e-4)


def test_what_differs_around_the_kernels_is_named():
    other = H200.model_copy(update={"device": "NVIDIA H100", "driver": "1", "torch": ""})
    before = run([attempt("a", 1.0)], settings={"judge": {"rounds": 10, "seeds": 2}, "tolerance": "strict"})
    after = run(
        [attempt("a", 1.0, machine=other)], settings={"judge": {"rounds": 20, "seeds": 2}, "tolerance": "strict"}
    )
    found = compare_runs(before, after)
    assert found.other_device and found.different == {
        "device": ("NVIDIA H200", "NVIDIA H100"),
        "driver": ("580.159.04", "1"),
        "setting judge rounds": ("10", "20"),
    }


def test_nothing_in_common_compares_to_nothing():
    found = compare_runs(run([attempt("a", 1.0)]), run([attempt("b", 1.0)]))
    assert found.tasks == 0 and found.speed.value is None and found.share.value is None and found.changes == []


def test_runs_share_a_place_unless_one_is_surely_below():
    tasks = [f"t{place:02}" for place in range(40)]

    def made(name, wins):
        return run(
            [attempt(task, {"eager": 2.0 if place < wins else 0.5}) for place, task in enumerate(tasks)], name=name
        )

    [table] = rank([made("worst", 4), made("best", 30), made("second", 29), made("third", 12)], "eager")
    places = [(standing.place, standing.tied, standing.run.name) for standing in table.standings]
    assert places == [(1, False, "best"), (1, True, "second"), (3, False, "third"), (4, False, "worst")]


def test_only_runs_over_the_same_tasks_on_the_same_device_stand_in_one_table():
    other = H200.model_copy(update={"device": "NVIDIA H100"})
    runs = [run([attempt("a", 2.0), attempt("b", 2.0)], name="one"), run([attempt("a", 2.0)], name="two")]
    runs.append(run([attempt("a", 2.0, machine=other)], name="three"))
    tables = rank(runs, "eager")
    assert [[standing.run.name for standing in table.standings] for table in tables] == [["one"], ["three"], ["two"]]
    assert tables[1].title == "s on NVIDIA H100"

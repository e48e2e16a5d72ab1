"""What a trial shows: numbers by hand, tasks in pairs, and nothing that did not run counted for or against an arm."""

from __future__ import annotations

import math

import pytest

from cutesmith.evals.records import Cost
from cutesmith.evals.skill_trials.measuring import arm_scores, difference, read_arm
from cutesmith.evals.skill_trials.pages import ablations, page_uses
from cutesmith.evals.skill_trials.report import findings, markdown
from tests.evals.sample_attempts import attempt, unjudged, wrong
from tests.evals.skill_trials.trials import CENT, trial, write_arm

DIME = Cost(dollars=0.10, input_tokens=1000, output_tokens=90, cached_tokens=10, turns=5)


def right(task, speedup=2.0, **fields):
    return attempt(task, speedup, **{"cost": DIME, **fields})


def bad(task, **fields):
    return wrong(task, **{"cost": CENT, **fields})


@pytest.fixture
def out(tmp_path):
    """Three repeats over four tasks: always, sometimes, never with the skill alone, and one that nobody solves."""
    write_arm(
        tmp_path,
        "with",
        [right("always"), right("sometimes"), right("skill", 3.0), bad("nobody")],
        [right("always"), bad("sometimes"), right("skill", 3.0), bad("nobody")],
        [right("always"), bad("sometimes"), right("skill", 3.0), bad("nobody")],
    )
    write_arm(
        tmp_path,
        "bare",
        [right("always", 1.0), bad("sometimes"), bad("skill"), bad("nobody")],
        [right("always", 1.0), bad("sometimes"), bad("skill"), bad("nobody")],
        [right("always", 1.0), right("sometimes"), bad("skill"), bad("nobody")],
    )
    return tmp_path


def test_an_arm_has_every_repeat_as_a_sample(out):
    scores = arm_scores(read_arm(trial(), out, "with"))
    assert (scores.tasks, scores.sessions, scores.judged) == (4, 12, 12)
    assert scores.solved.value == pytest.approx((1 + 1 / 3 + 1) / 4) and scores.fast.value == scores.solved.value
    assert scores.speedup.value == pytest.approx((2 * 2 * 3) ** (1 / 3))
    assert scores.dollars == pytest.approx(7 * 0.10 + 5 * 0.01)
    assert scores.dollars_a_session == pytest.approx(0.75 / 12)
    assert scores.tokens_a_session == pytest.approx((7 * 1100 + 5 * 110) / 12)
    assert scores.turns_a_session == pytest.approx((7 * 5 + 5 * 2) / 12)


def test_the_difference_is_paired_by_task(out):
    found = difference(*(read_arm(trial(), out, arm) for arm in ("bare", "with")))
    assert (found.tasks, found.unpaired) == (4, 0)
    assert found.solved.value == pytest.approx(1 / 4)  # 0, 0, 1, 0
    low, high = found.solved.interval
    assert low == 0 and 0.5 <= high <= 1  # one task of four carries it: resamples without that task show nothing
    assert found.solved_p == 1.0
    assert found.fast.value == pytest.approx((1 + 0 + 1 + 0) / 4)  # at the speed of eager is not faster
    assert found.speedup.over == 2 and found.speedup.value == pytest.approx(math.sqrt(2.0))
    assert found.dollars.value == pytest.approx(0.09 / 4)
    assert found.turns.value == pytest.approx(3 / 4)
    (flip,) = found.flips
    assert (flip.task, flip.first, flip.second) == ("skill", (0, 3), (3, 3))
    assert flip.first_said.startswith("verify: wrong_result")


def test_the_other_way_round_is_the_opposite(out):
    there, back = (
        difference(read_arm(trial(), out, first), read_arm(trial(), out, second))
        for first, second in (("bare", "with"), ("with", "bare"))
    )
    assert back.solved.value == -there.solved.value and back.tokens.value == -there.tokens.value
    assert back.solved.interval == pytest.approx(tuple(-bound for bound in reversed(there.solved.interval)))
    assert back.speedup.value == pytest.approx(1 / there.speedup.value)


def test_where_all_tasks_differ_alike_nothing_is_called_certain(tmp_path):
    names = [f"task{number}" for number in range(10)]
    write_arm(tmp_path, "with", *[[right(name) for name in names]] * 3)
    write_arm(tmp_path, "bare", *[[bad(name) for name in names]] * 3)
    found = difference(*(read_arm(trial(), tmp_path, arm) for arm in ("bare", "with")))
    # Of all tasks up to 3.84 / 13.84 may be otherwise, and these may be worse: 1 in place of each becomes -1.
    assert found.solved.value == 1.0
    assert found.solved.interval == pytest.approx((1 - 2 * 3.8415 / 13.8415, 1.0), abs=1e-4)
    assert (found.more, found.less, found.alike) == (10, 0, 0)
    assert found.solved_p == pytest.approx(2 / 2**10)
    assert found.dollars.value == pytest.approx(0.09) and found.dollars.interval is None


def test_equal_arms_show_no_difference(tmp_path):
    for arm in ("with", "bare"):
        write_arm(tmp_path, arm, *[[right("one"), bad("two")]] * 3)
    found = difference(*(read_arm(trial(), tmp_path, arm) for arm in ("bare", "with")))
    assert found.solved.value == 0.0 and found.solved_p == 1.0 and found.flips == ()
    assert found.solved.interval[0] < 0 < found.solved.interval[1] and found.speedup.value == pytest.approx(1.0)


def test_what_no_machine_judged_counts_for_neither_arm(tmp_path):
    write_arm(tmp_path, "with", [right("both"), right("lost")], [unjudged("both"), right("lost")])
    write_arm(tmp_path, "bare", [bad("both"), unjudged("lost")])
    found = difference(*(read_arm(trial(repeats=2), tmp_path, arm) for arm in ("bare", "with")))
    assert (found.tasks, found.unpaired, found.solved.value) == (1, 1, 1.0)
    assert found.flips[0].second == (1, 1)
    assert arm_scores(read_arm(trial(repeats=2), tmp_path, "with")).judged == 3


def test_correct_kernels_without_times_are_not_called_slow(tmp_path):
    write_arm(tmp_path, "with", [attempt("one", cost=CENT), bad("two")])
    write_arm(tmp_path, "bare", [bad("one"), bad("two")])
    found = difference(*(read_arm(trial(repeats=1), tmp_path, arm) for arm in ("bare", "with")))
    assert found.fast.over == 1 and found.fast.value == 0.0 and found.speedup.value is None


def tool(name, text, is_error=False, **given):
    return {"kind": "tool", "name": name, "input": given, "text": text, "is_error": is_error}


SESSION = [
    tool("search_references", "faq.md#one  One\n  see epilogues.md\nepilogues.md#two  Two\n2 sections.", query="x"),
    tool("read_reference", "x" * 100, address="references/epilogues.md#two"),
    tool("read_reference", "y" * 50, address="epilogues"),
    tool("read_reference", "there is no such page", is_error=True, address="faq.md#nothing"),
    {"kind": "reply", "content": []},
]


def test_readings_and_hits_of_a_page_are_counted():
    uses = page_uses([SESSION, []])
    epilogues, faq = uses["epilogues.md"], uses["faq.md"]
    assert (epilogues.of, epilogues.sessions, epilogues.reads, epilogues.hits) == (2, 1, 2, 1)
    assert epilogues.read_characters == 150 and epilogues.characters > 10_000
    assert (faq.sessions, faq.reads, faq.hits) == (0, 0, 1) and "README.md" not in uses


def test_pages_stand_in_the_order_of_what_their_absence_costs(tmp_path):
    write_arm(tmp_path, "with", *[[right("one"), right("two")]] * 3)
    write_arm(tmp_path, "without-faq", *[[right("one"), right("two")]] * 3)
    write_arm(tmp_path, "without-epilogues", *[[right("one"), bad("two")]] * 3)
    write_arm(tmp_path, "without-glossary", *[[right("one", 1.0), right("two", 1.0)]] * 3)
    whole = trial("with", "without-faq", "without-epilogues", "without-glossary")
    found = findings(whole, tmp_path)
    assert [row.use.page for row in found.ablations] == ["epilogues.md", "glossary.md", "faq.md"]
    losses = [row.difference for row in found.ablations]
    assert [loss.solved.value for loss in losses] == [0.5, 0.0, 0.0]
    assert losses[1].speedup.value == pytest.approx(2.0) and found.difference is None
    assert ablations(read_arm(whole, tmp_path, "with"), {}, {}) == []
    text = "\n".join(markdown(found))
    assert "## Which pages earn their tokens" in text and "+50 points" in text and "weighs too much" not in text


def test_a_trial_that_has_only_begun_is_reported_as_far_as_it_is(tmp_path):
    assert findings(trial(), tmp_path).arms == ()
    write_arm(tmp_path, "with", [right("one")])
    found = findings(trial(repeats=1), tmp_path)
    assert [arm.arm for arm in found.arms] == ["with"] and found.difference is None
    assert "1 of at least 3 repeats" in "\n".join(markdown(found))

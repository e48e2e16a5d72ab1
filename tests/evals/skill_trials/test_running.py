"""The runs of a trial: in turn, gone on with after a kill, and none begun that could cost too much."""

from __future__ import annotations

import json

from cutesmith.evals.skill_trials.running import spent_dollars
from cutesmith.evals.skill_trials.trial import is_complete, run_folder
from tests.evals.skill_trials.trials import Sessions, trial


def test_every_arm_gets_its_options_in_every_repeat(tmp_path):
    whole, sessions = trial("with", "bare", "without-faq", session=("--max-turns", "9")), Sessions(tmp_path)
    progress = sessions.run(whole, tmp_path / "out")
    assert progress.complete and progress.total == 9 and not progress.open
    assert sessions.plans == [str(run_folder(tmp_path / "out", step)) for step in whole.steps()]
    options = {"with": (), "bare": ("--bare",), "without-faq": ("--without-page", "faq.md")}
    expected = [("--max-turns", "9", *options[step.arm]) for step in whole.steps() for _ in range(2)]
    assert [asked for _, asked in sessions.asked] == expected
    about = json.loads((tmp_path / "out" / "runs" / "bare" / "2" / "run.json").read_text())
    assert about["settings"]["maker"]["options"] == ["--max-turns", "9", "--bare"]


def test_a_trial_that_was_killed_goes_on_and_pays_for_no_session_twice(tmp_path):
    whole, out = trial(), tmp_path / "out"
    first = Sessions(tmp_path, lives=5)
    progress = first.run(whole, out)
    assert progress.interrupted and not progress.complete and len(first.asked) == 5
    second = Sessions(tmp_path)
    assert second.run(whole, out).complete
    assert len(second.asked) == 12 - 5
    assert len(second.plans) == 6 - progress.done
    third = Sessions(tmp_path)
    assert third.run(whole, out).complete and third.asked == third.plans == []


def test_no_run_is_begun_that_could_pass_the_limit(tmp_path):
    whole, out, sessions = trial(cap=0.10), tmp_path / "out", Sessions(tmp_path, dollars=0.07)
    progress = sessions.run(whole, out, most_dollars=0.50)
    # A run of two sessions may take 0.20: after three runs 0.42 is spent, and a fourth could come to 0.62.
    assert progress.out_of_dollars and (progress.done, len(sessions.asked)) == (3, 6)
    assert round(spent_dollars(whole, out), 6) == 0.42
    assert Sessions(tmp_path, dollars=0.07).run(whole, out, most_dollars=0.62).done == 4
    assert Sessions(tmp_path, dollars=0.07).run(whole, out).complete


def test_what_is_open_is_told_and_made_up_for(tmp_path):
    whole, out, sessions = trial(repeats=1), tmp_path / "out", Sessions(tmp_path)
    answer, sessions.answer = sessions.answer, lambda job: away(job, answer)
    progress = sessions.run(whole, out)
    assert not progress.complete and progress.done == 1
    assert all(name.startswith("with/0 ") and "went away" in why for name, why in progress.open.items())
    assert Sessions(tmp_path).run(whole, out).complete


def away(job, answer):
    """A GPU that goes away whenever a kernel is to be verified."""
    made = answer(job)
    return type(made)(**{**vars(made), "lost": "the GPU went away"}) if job.stage == "verify" else made


def test_a_run_without_a_line_for_every_task_is_not_whole(tmp_path):
    whole, out = trial(repeats=1), tmp_path / "out"
    Sessions(tmp_path).run(whole, out)
    folder = run_folder(out, whole.steps()[0])
    assert is_complete(folder)
    results = folder / "results.jsonl"
    results.write_bytes(results.read_bytes()[:-20])
    assert not is_complete(folder)
    again = Sessions(tmp_path)
    assert again.run(whole, out).complete and is_complete(folder)
    assert again.asked == []  # the kernel and its session are there, only the line was cut

"""Options of `eval run` that a trial hands on, has itself, or refuses by a sentence; none is passed over in silence."""

from __future__ import annotations

import pytest

from cutesmith.commands import eval_run, eval_skill
from cutesmith.commands.eval_skill import FORWARDED, REFUSED, main
from cutesmith.errors import UsageError
from cutesmith.evals.skill_trials.trial import Step, keep_trial
from tests.evals.skill_trials.trials import trial

OWN = {"agent", "out", "resume", "quiet", "json", "help"}
"""What a trial has itself, with a meaning of its own."""


def options_of(parser):
    return {action.dest: action.option_strings for action in parser._actions}


def test_every_option_of_a_run_has_its_place():
    run = options_of(eval_run._parser())
    refused = {name for name, flags in run.items() if REFUSED.keys() & set(flags)}
    assert set(run) == set(FORWARDED) | OWN | refused
    assert not refused & set(options_of(eval_skill._parser()))


@pytest.fixture
def suite(write_file, tmp_path):
    write_file("def reference_fn(x): return x\ndef get_inputs(): return []\n", "tasks/level1/one.py")
    write_file("[]", "script.json")
    return ["--suite", str(tmp_path / "tasks"), f"--agent=script:{tmp_path / 'script.json'}"]


@pytest.mark.parametrize("flag", [*REFUSED, "--samples=3"])
def test_what_a_trial_cannot_hand_on_is_refused(suite, capsys, flag):
    assert main([*suite, "--plan", flag, "3"]) == 2
    assert f"{flag.partition('=')[0]} is not for a trial: " in capsys.readouterr().err


def test_options_after_the_two_dashes_are_a_session_s(suite, capsys):
    assert main([*suite, "--plan", "--", "--configurations", "1"]) == 0


def test_a_cluster_is_handed_on_to_every_run(suite, tmp_path):
    ray = ("--engine", "ray", "--address", "10.0.0.1:6379", "--jobs", "5", "--judges", "2", "--gpus", "4")
    options = eval_skill._parser().parse_args([*suite, *ray, "--on", "emulator"])
    made, made_arms = eval_skill._trial(options, [])
    command = made.command(Step(arm="bare", repeat=0), made_arms[1], tmp_path)
    parsed = eval_run._parser().parse_args(eval_run.split_options(command)[0])
    assert (parsed.engine, parsed.address, parsed.jobs, parsed.judges, parsed.gpus) == (
        "ray",
        "10.0.0.1:6379",
        5,
        2,
        "4",
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--address", "h:1"), "--address is that of a Ray cluster"),
        (("--grader", "claude"), "--grader: not with a trial over the tasks of a suite"),
        (("--queries", "q.json"), "--queries: not with a trial over the tasks of a suite"),
        (("--triggers",), "--suite: not with --triggers"),
    ],
)
def test_what_would_be_passed_over_is_refused(suite, capsys, more, said):
    assert main([*suite, "--plan", *more]) == 2
    assert said in capsys.readouterr().err


def test_a_run_on_this_machine_has_the_words_it_had_before(suite, tmp_path, capsys):
    options = eval_skill._parser().parse_args([*suite])
    assert "--engine" not in list(eval_skill._forwarded(options))


def test_what_another_trial_in_the_folder_has_otherwise_is_named(tmp_path):
    keep_trial(tmp_path, trial(words=("--suite", "core", "--only", "a" * 200, "--jobs", "3")))
    with pytest.raises(UsageError, match="another words: --jobs 3, not --jobs 4 --engine ray"):
        keep_trial(tmp_path, trial(words=("--suite", "core", "--only", "a" * 200, "--jobs", "4", "--engine", "ray")))
    with pytest.raises(UsageError, match="another arms: with bare, not with\n"):
        keep_trial(tmp_path, trial("with", words=("--suite", "core", "--only", "a" * 200, "--jobs", "3")))

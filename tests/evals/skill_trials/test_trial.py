"""What a trial is: its arms, the order of its runs, the folder that keeps it, and what the command says beforehand."""

from __future__ import annotations

import json
import re

import pytest

from cutesmith.agent.texts.hidden_pages import known_pages
from cutesmith.commands.eval_skill import main
from cutesmith.errors import UsageError
from cutesmith.evals.skill_trials.trial import arms_of, keep_trial, read_trial
from tests.evals.skill_trials.trials import arms, trial


def test_every_page_is_an_arm_of_its_own_beside_the_whole_skill():
    found = arms_of(whole=False, bare=False, pages=["all"])
    assert [arm.name for arm in found] == ["with", *(f"without-{page.removesuffix('.md')}" for page in known_pages())]
    assert found[0].options == () and found[0].page == ""
    assert found[1].options == ("--without-page", found[1].page)
    assert arms_of(whole=True, bare=True, pages=[])[1].options == ("--bare",)
    with pytest.raises(UsageError, match=re.escape("no reference page nothing.md")):
        arms_of(whole=True, bare=True, pages=["nothing"])


def test_repeats_follow_each_other_with_the_arms_in_random_order():
    whole = trial("with", "bare", "without-faq", repeats=20)
    steps = whole.steps()
    for number in range(20):
        round_ = steps[3 * number : 3 * number + 3]
        assert {step.repeat for step in round_} == {number} and {step.arm for step in round_} == set(whole.arms)
    first = [steps[3 * number].arm for number in range(20)]
    assert len(set(first)) == 3
    assert steps == trial(*whole.arms, repeats=20).steps() != trial(*whole.arms, repeats=20, seed=1).steps()


def test_a_run_is_a_plain_command_line_of_eval_run(tmp_path):
    whole = trial("bare", agent="script:S/{arm}/{repeat}/{task}.json", session=("--max-turns", "5"), cap=0.5)
    command = whole.command(whole.steps()[1], arms(whole)[0], tmp_path)
    assert command == [
        *("--suite", "core", "--agent", "script:S/bare/1/{task}.json", "--no-cache"),
        *("--out", str(tmp_path / "runs" / "bare" / "1"), "--", "--max-turns", "5", "--max-dollars", "0.5", "--bare"),
    ]


def test_a_folder_takes_the_same_trial_again_and_no_other(tmp_path):
    assert read_trial(tmp_path / "new") is None
    keep_trial(tmp_path / "new", trial(cap=0.25))
    keep_trial(tmp_path / "new", trial(cap=0.25))
    assert read_trial(tmp_path / "new") == trial(cap=0.25)
    with pytest.raises(UsageError, match="another repeats: 3, not 4"):
        keep_trial(tmp_path / "new", trial(repeats=4, cap=0.25))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"words": []}', "\x00"])
def test_a_file_that_describes_no_trial_is_told(tmp_path, text):
    (tmp_path / "trial.json").write_text(text)
    with pytest.raises(UsageError, match="describes no trial"):
        read_trial(tmp_path)


def test_a_place_that_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match=r"cannot be written|describes no trial"):
            keep_trial(out, trial())


@pytest.fixture
def suite(write_file, tmp_path):
    for name in ("one", "two"):
        write_file("def reference_fn(x): return x\ndef get_inputs(): return []\n", f"tasks/level1/{name}.py")
    return ("--suite", str(tmp_path / "tasks"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--max-dollars", "6", "--plan"), "12 sessions with claude: 2 tasks, 3 repeats of with, bare"),
        (("--max-dollars", "6", "--plan"), "at most 0.5 dollars a session, 6.00 in all"),
        (("--plan", "--repeats=5", "--", "--max-dollars", "1"), "at most 1 dollars a session, 20.00 in all"),
        (("--max-dollars=7", "--plan", "--", "--max-dollars", "1"), "at most 1 dollars a session, 7.00 in all"),
        (("--with", "--plan", "--", "--max-dollars", "1"), "6 sessions with claude: 2 tasks, 3 repeats of with\n"),
        (("--ablate=faq", "--plan", "--", "--max-dollars", "1"), "3 repeats of with, without-faq\n"),
        (("--ablate=faq", "--without", "--plan", "--", "--max-dollars=1"), "of with, bare, without-faq\n"),
    ],
)
def test_the_plan_says_how_many_sessions_and_at_most_how_many_dollars(suite, capsys, more, said):
    assert main([*suite, *more]) == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--plan",), "nothing limits what this costs"),
        (("--max-dollars", "1"), "--out is missing"),
        (("--max-dollars", "0", "--plan"), "it must be positive"),
        (("--agent", "draft", "--plan"), "it reads no skill"),
        (("--agent", "dir:x", "--plan"), "it reads no skill"),
        (("--agent", "script:none.json", "--plan"), "no such file"),
        (("--ablate", "faq,none", "--max-dollars=1", "--plan"), "no reference page none.md"),
        (("--resume",), "no trial to go on with"),
    ],
)
def test_what_cannot_be_tried_is_told_before_anything_is_made(suite, capsys, tmp_path, more, said):
    assert main([*suite, *more]) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["tasks"]


def test_the_plan_is_one_json_object_too(suite, capsys):
    assert main([*suite, "--max-dollars", "6", "--plan", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["sessions"], told["dollars_a_session"], told["dollars"]) == (12, 0.5, 6.0)


def test_nothing_is_spent_without_a_yes(suite, capsys, tmp_path):
    out = tmp_path / "out"
    assert main([*suite, "--max-dollars", "1", "--out", str(out)]) == 2
    assert "nobody is there to accept" in capsys.readouterr().err and not out.exists()


def test_the_share_of_a_session_stays_when_a_trial_is_resumed(suite, capsys, tmp_path, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    out = str(tmp_path / "out")
    main([*suite, "--max-dollars", "6", "--yes", "--quiet", "--out", out])  # no key: it ends at the first run
    capsys.readouterr()
    assert json.loads((tmp_path / "out" / "trial.json").read_text())["cap"] == 0.5
    assert main(["--resume", "--out", out, "--repeats=5", "--without"]) == 2
    assert "as it was begun, without --repeats, --without" in capsys.readouterr().err
    assert main(["--resume", "--out", out, "--", "--max-turns", "5"]) == 2
    capsys.readouterr()
    assert main(["--resume", "--max-dollars", "9", "--out", out, "--plan"]) == 0
    assert "at most 0.5 dollars a session, 6.00 in all" in capsys.readouterr().out

"""`cutesmith eval skill --evals` as people call it: scripts that act differently in each arm, and one that grades."""

from __future__ import annotations

import json
import re

import pytest

from cutesmith import resources
from cutesmith.cli import main
from cutesmith.evals.skill_trials import forms

EVALS = {
    "skill_name": resources.SKILL_NAME,
    "evals": [
        {
            "id": number,
            "prompt": f"Look at kernel.py, number {number}.",
            "expected_output": "Words.",
            "files": ["in/kernel.py"],
            "expectations": ["lint_kernel.py was run", "It is clear"],
        }
        for number in (1, 2)
    ],
}
CHECKS = {
    "skill_name": resources.SKILL_NAME,
    "checks": [{"expectation": "lint_kernel.py was run", "check": "called", "script": "lint_kernel.py"}],
}
LINT = {"name": "run_script", "input": {"script": "lint_kernel.py", "arguments": ["kernel.py"]}}
WITH = [{"calls": [LINT], "usage": {"input_tokens": 70}}, {"text": "It defines no kernel at all."}]
BARE = [{"text": "I did not look at it at all."}]


def grades(quote):
    entries = [{"number": 1, "verdict": "passed", "evidence": quote}]
    return [{"calls": [{"name": "grade", "input": {"grades": entries}}], "dollars": 0.25}] * 2


@pytest.fixture
def words(write_file, tmp_path):
    """The command line of two repeats; the grader of the bare arm quotes what nobody said."""
    write_file(json.dumps(EVALS), "evals.json")
    write_file(json.dumps(CHECKS), "checks.json")
    write_file("def kernel_fn(x):\n    return x\n", "in/kernel.py")
    for arm, script, quote in (("with", WITH, "no kernel at all"), ("bare", BARE, "clear as daylight")):
        write_file(json.dumps(script), f"{arm}/agent.json")
        write_file(json.dumps(grades(quote)), f"{arm}/grader.json")
    agent = f"script:{tmp_path}/{{arm}}/agent.json"
    return ["eval", "skill", f"--evals={tmp_path / 'evals.json'}", "--agent", agent, "--repeats", "2"]


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_sessions_are_held_graded_and_gone_on_with(words, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([*words, "--out", str(out), "--json"]) == 0
    first = told(capsys)
    assert (first["total"], first["done"], first["scores"]["undecided"], first["dollars"]) == (8, 8, 8, 0.0)
    grader = f"script:{tmp_path}/{{arm}}/grader.json"
    assert main(["eval", "skill", "--resume", "--out", str(out), "--grader", grader, "--json"]) == 0
    then = told(capsys)
    rates = {(rates["eval"], rates["text"]): rates for rates in then["scores"]["rates"]}
    ran, clear = rates[1, "lint_kernel.py was run"], rates[2, "It is clear"]
    assert [ran["passed"][arm]["count"] for arm in ("with", "bare")] == [2, 0] and ran["decided_by"] == ["way"]
    assert [clear["passed"][arm]["count"] for arm in ("with", "bare")] == [2, 0]
    assert clear["undecided"] == {"with": 0, "bare": 2} and clear["difference"]["interval"][0] < 0
    assert then["scores"]["all"]["arms"]["with"]["value"] == 1.0 and then["dollars"] == 8 * 0.25
    costs = {cost["arm"]: cost for cost in then["scores"]["costs"]}
    assert costs["with"]["tokens_a_session"] == 70 and costs["bare"]["turns_a_session"] == 1
    assert {path.name for path in out.iterdir()} == {"report.html", "report.md", "result.json", "runs", "trial.json"}
    assert "| 2   | It is clear" in (out / "report.md").read_text()
    assert (out / "runs" / "with" / "1" / "2" / "grading.json").is_file()


def test_only_some_are_held_and_the_plan_says_what_code_decides(words, capsys):
    assert main([*words, "--only", "2", "--without", "--plan"]) == 0
    said = capsys.readouterr().out
    assert "2 sessions with script:" in said and "1 evaluations, 2 repeats of bare" in said
    assert "1 of 2 expectations are decided by code; the others stay undecided without --grader" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--only", "3"), "there is no evaluation 3"),
        (("--ablate", "faq"), "--ablate: not with --evals"),
        (("--suite", "level1", "--engine", "ray"), "--suite, --engine: not with --evals"),
        (("--agent", "replay:x"), "nobody who holds these sessions"),
        (("--grader", "replay:x"), "nobody who holds these sessions"),
        (("--agent", "claude"), "nothing limits what this costs"),
        (
            ("--agent", "claude", "--grader", "claude", "--max-dollars", "1"),
            "the grading of 8 sessions may take it all",
        ),
    ],
)
def test_what_cannot_be_held_is_told_before_anything_is_made(words, capsys, tmp_path, more, said):
    assert main([*words, *more, "--out", str(tmp_path / "out")]) == 2
    assert re.search(re.escape(said), capsys.readouterr().err) and not (tmp_path / "out").exists()


def test_grading_is_part_of_what_it_costs_at_most(words, capsys):
    paid = ("--agent", "claude", "--max-dollars", "40", "--plan", "--json")
    assert main([*words, *paid]) == 0
    alone = told(capsys)
    assert main([*words, *paid, "--grader", "claude"]) == 0
    graded = told(capsys)
    assert alone["dollars"] == graded["dollars"] == pytest.approx(40) and alone["sessions"] == 8


def test_a_trial_goes_on_as_it_was_begun(words, capsys, tmp_path):
    out = str(tmp_path / "out")
    assert main([*words, "--only", "1", "--with", "--out", out]) == 0
    capsys.readouterr()
    assert main(["eval", "skill", "--resume", "--out", out, "--repeats", "5"]) == 2
    assert "as it was begun, without --repeats" in capsys.readouterr().err
    assert main([*words, "--with", "--out", out]) == 2
    assert "holds a trial with another words" in capsys.readouterr().err


def test_the_scripts_beside_our_own_evaluations_act_their_part(tmp_path, capsys):
    here = forms.folder() / "sessions"
    who = [f"--{role}=script:{here}/{{arm}}/{name}.json" for role, name in (("agent", "evals"), ("grader", "grades"))]
    assert main(["eval", "skill", "--evals", "--only", "5", *who, "--out", str(tmp_path), "--quiet", "--json"]) == 0
    rates = {rates["text"][:9]: rates for rates in told(capsys)["scores"]["rates"]}
    assert [rates["No script"]["passed"][arm]["count"] for arm in ("with", "bare")] == [3, 3]
    assert rates["The answe"]["passed"]["with"]["count"] == 3 and rates["The answe"]["undecided"]["bare"] == 3
    given = (forms.folder() / "files" / "early_exit" / "kernel.py").read_text()
    for arm in ("with", "bare"):
        turns = json.loads((here / arm / "evals.json").read_text())["3"]
        edits = [call["input"] for turn in turns for call in turn.get("calls", ()) if call["name"] == "edit_file"]
        assert edits and all(given.count(edit["old_text"]) == 1 for edit in edits)

"""Sessions of evals.json held by a script, and graded: whatever the grader says, nothing passes without its proof."""

from __future__ import annotations

import asyncio
import json

import pytest

from cutesmith.agent.budget import Limits
from cutesmith.agent.models.scripted_model import ScriptedModel
from cutesmith.evals.skill_trials.expectations.checks import SkillChecks
from cutesmith.evals.skill_trials.expectations.grading import grade_session
from cutesmith.evals.skill_trials.expectations.model_grader import GRADE, judged, material_of
from cutesmith.evals.skill_trials.expectations.sessions import SessionPlace, hold_session, system_of
from cutesmith.evals.skill_trials.forms import SkillEval

TASK = SkillEval(
    id=7,
    prompt="Write notes.txt.",
    expected_output="A file.",
    files=["in/given.txt"],
    expectations=["notes.txt is there", "It says hello", "It is polite"],
)
CHECKS = {
    "notes.txt is there": SkillChecks.model_validate(
        {
            "skill_name": "s",
            "checks": [{"expectation": "notes.txt is there", "check": "exists", "path": "notes.txt"}],
        }
    ).checks
}
UNLIMITED = Limits()
TURNS = [
    {"calls": [{"name": "create_file", "input": {"path": "notes.txt", "text": "hello dear reader"}}], "dollars": 0.02},
    {"text": "notes.txt says hello now.", "dollars": 0.01},
]


def call(*grades):
    entries = [{"number": n, "verdict": verdict, "evidence": quote} for n, verdict, quote in grades]
    return {"calls": [{"name": GRADE, "input": {"grades": entries}}], "dollars": 0.5}


@pytest.fixture
def place(tmp_path, write_file):
    """A session that is over."""
    write_file("given", "root/in/given.txt")
    place = SessionPlace(folder=tmp_path / "session")
    hold(place, tmp_path, ScriptedModel(TURNS))
    return place


def hold(place, tmp_path, model, limits=UNLIMITED, arm="with"):
    asyncio.run(hold_session(TASK, arm, model, limits, place, tmp_path / "root"))


def grade(place, tmp_path, grader=None):
    return asyncio.run(grade_session(TASK, 0, place, CHECKS, grader, tmp_path / "root"))


def told(grading):
    return [(one.verdict, one.decided_by) for one in grading.grades]


def test_a_session_keeps_its_files_its_words_and_what_was_asked(place):
    kinds = [event["kind"] for event in place.events()]
    assert kinds == ["line", "run", "reply", "tool", "reply", "ended"] and place.is_over()
    assert (place.work / "notes.txt").read_text() == "hello dear reader"
    assert place.events()[0]["opening"] == "Write notes.txt.\n\nFiles in your folder: given.txt"
    assert (place.work / "given.txt").read_text() == "given"


def test_a_session_goes_on_where_it_was_killed(place, tmp_path):
    cut = SessionPlace(folder=tmp_path / "cut")
    cut.work.mkdir(parents=True)
    lines = place.transcript.read_text().splitlines(keepends=True)
    cut.transcript.write_text("".join(lines[:3]))  # killed before the file was written
    model = ScriptedModel(TURNS)
    hold(cut, tmp_path, model)
    assert [request.turn for request in model.requests] == [2] and (cut.work / "notes.txt").is_file()
    assert model.requests[0].messages[-1]["content"][0]["type"] == "tool_result"


def test_limits_end_a_session_and_say_so(tmp_path, place):
    short = SessionPlace(folder=tmp_path / "short")
    hold(short, tmp_path, ScriptedModel(TURNS), Limits(turns=1))
    assert short.events()[-1]["ending"] == "limit" and "1 of 1 turns" in short.events()[-1]["reason"]
    dear = SessionPlace(folder=tmp_path / "dear")
    hold(dear, tmp_path, ScriptedModel(TURNS), Limits(dollars=0.03))
    assert "dollars" in dear.events()[-1]["reason"]


def test_only_the_arm_with_the_skill_has_it(tmp_path, place):
    assert "# CuTe DSL kernels" in system_of("with") and "# CuTe DSL kernels" not in system_of("bare")
    ask = {"name": "run_script", "input": {"script": "search_references.py", "arguments": ["x"]}}
    out = {"name": "run_script", "input": {"script": "lint_kernel.py", "arguments": ["../notes.txt"]}}
    inner = {"name": "run_script", "input": {"script": "lint_kernel.py", "arguments": ["--agent", "claude"]}}
    read = {"name": "read_skill_file", "input": {"path": "references/faq.md"}}
    bare = SessionPlace(folder=tmp_path / "bare")
    hold(bare, tmp_path, ScriptedModel([{"calls": [ask, out, inner, read]}, {"text": "no"}]), arm="bare")
    answers = [event["text"] for event in bare.events() if event["kind"] == "tool"]
    said = ("there is no script 'search_references.py'", "leaves the work folder", "begin another", "there is no tool")
    assert all(words in answer for words, answer in zip(said, answers, strict=True))
    whole = SessionPlace(folder=tmp_path / "whole")
    hold(whole, tmp_path, ScriptedModel([{"calls": [read]}, {"text": "yes"}]))
    assert next(event["text"] for event in whole.events() if event["kind"] == "tool").startswith("# ")


def test_code_decides_what_it_can_and_a_model_the_rest(place, tmp_path):
    model = ScriptedModel([call((1, "passed", "hello dear\nreader"), (2, "failed", ""))])
    grading = grade(place, tmp_path, model)
    assert told(grading) == [("passed", "result"), ("passed", "model"), ("failed", "model")]
    assert grading.dollars == 0.5 and grading.grades[0].evidence == "notes.txt is there"
    (request,) = model.requests
    asked = request.messages[0]["content"]
    assert (
        "1. It says hello\n2. It is polite\n" in asked and "3." not in asked and (request.line, request.turn) == (7, 1)
    )
    assert "The file notes.txt at the end:\nhello dear reader" in asked and "notes.txt says hello now." in asked
    kept = json.loads((place.folder / "grading.json").read_text())
    assert kept["summary"] == {"passed": 2, "failed": 1, "undecided": 0, "total": 3, "pass_rate": 2 / 3}
    again = grade(place, tmp_path, ScriptedModel([]))  # asked again it could not answer
    assert again == grading


def test_without_a_grader_the_rest_is_undecided_until_there_is_one(place, tmp_path):
    assert told(grade(place, tmp_path)) == [("passed", "result"), ("undecided", "nobody"), ("undecided", "nobody")]
    kept = json.loads((place.folder / "grading.json").read_text())
    assert [entry["passed"] for entry in kept["expectations"]] == [True, False, False]
    later = grade(place, tmp_path, ScriptedModel([call((1, "passed", "hello dear reader"), (2, "undecided", ""))]))
    assert told(later) == [("passed", "result"), ("passed", "model"), ("undecided", "model")]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"grades": [{"number": 1, "verdict": "passed", "evidence": "goodbye dear reader"}]}, "does not have"),
        ({"grades": [{"number": 1, "verdict": "failed", "evidence": "goodbye dear reader"}]}, "does not have"),
        ({"grades": [{"number": 1, "verdict": "passed", "evidence": ""}]}, "without a passage"),
        ({"grades": [{"number": 1, "verdict": "passed", "evidence": "hello"}]}, "without a passage"),
        ({"grades": [{"number": 2, "verdict": "passed", "evidence": "hello dear reader"}]}, "judged 0 times"),
        ({"grades": [{"number": 1, "verdict": "passed", "evidence": "hello dear reader"}] * 2}, "judged 2 times"),
        ({"grades": [{"number": "1", "verdict": "passed", "evidence": "hello dear reader"}]}, "has not the form"),
        ({"grades": [{"number": 1, "verdict": "yes", "evidence": "hello dear reader"}]}, "has not the form"),
        ({"grades": [{"number": 1, "verdict": "passed", "evidence": "hello dear reader", "sure": 1}]}, "not the form"),
        ({}, "has not the form"),
        (None, "has not the form"),
        ("passed", "has not the form"),
    ],
)
def test_an_answer_that_proves_nothing_passes_nothing(place, answer, why):
    (judgement,) = judged(answer, 1, material_of(place.events(), place.work))
    assert judgement.verdict == "undecided" and why in judgement.evidence


@pytest.mark.parametrize("turn", [{"text": "All of them pass."}, {"calls": [{"name": "grant", "input": {}}]}])
def test_a_grader_that_does_not_answer_in_the_form_decides_nothing(place, tmp_path, turn):
    assert told(grade(place, tmp_path, ScriptedModel([turn])))[1:] == [("undecided", "model")] * 2

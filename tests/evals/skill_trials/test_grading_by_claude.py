"""The grader over the Messages API: one tool, one question, and an answer that is checked as any other."""

from __future__ import annotations

import asyncio

from cutesmith.evals.skill_trials.expectations import model_grader
from cutesmith.evals.skill_trials.expectations.model_grader import GRADE, grade_by_model, most_dollars_of_a_grading
from cutesmith.evals.skill_trials.forms import SkillEval
from tests.agent import messages_server as api
from tests.agent.asking import model_of

TASK = SkillEval(id=1, prompt="Say it.", expected_output="It.", expectations=["It is said", "It is short"])
MATERIAL = "The agent said:\nIt is said here, in a few words."


def test_claude_grades_through_the_messages_api():
    entries = [
        {"number": 2, "verdict": "failed", "evidence": "at great length"},
        {"number": 1, "verdict": "passed", "evidence": "It is said here,"},
    ]
    with api.serving(api.answer(api.call(GRADE, {"grades": entries}))) as server:
        model = model_of(server, max_tokens=model_grader.ANSWER_TOKENS)
        found = asyncio.run(grade_by_model(model, TASK, 0, TASK.expectations, MATERIAL))
        (body,) = server.bodies
    assert [judgement.verdict for judgement in found.judgements] == ["passed", "undecided"]
    assert "words that the session does not have: at great length" in found.judgements[1].evidence
    assert found.dollars > 0 and found.dollars < most_dollars_of_a_grading(model.name)
    assert [tool["name"] for tool in body["tools"]] == [GRADE]
    asked = body["messages"][0]["content"][0]["text"]
    assert f"{model_grader.BEGIN}\n{MATERIAL}\n{model_grader.END}" in asked and "2. It is short" in asked


def test_an_answer_in_words_alone_decides_nothing():
    with api.serving(api.answer(api.text("Both are met."))) as server:
        found = asyncio.run(grade_by_model(model_of(server), TASK, 0, TASK.expectations, MATERIAL))
    assert [judgement.verdict for judgement in found.judgements] == ["undecided"] * 2
    assert "it called grade 0 times" in found.judgements[0].evidence


def test_a_model_without_a_known_price_has_no_bound():
    assert most_dollars_of_a_grading("gpt-oss") is None

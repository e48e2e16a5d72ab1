"""Trigger queries: their forms, what a model is shown, answers that are kept, and precision and recall by hand."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from cutesmith import resources
from cutesmith.agent.models.model import ModelError, Reply, Usage
from cutesmith.agent.models.prices import PRICES
from cutesmith.agent.models.scripted_model import ScriptedModel
from cutesmith.commands.eval_skill import main
from cutesmith.errors import UsageError
from cutesmith.evals.skill_trials import forms, triggers
from cutesmith.evals.skill_trials.forms import TriggerQuery, read_evals, read_triggers
from cutesmith.evals.skill_trials.tables import trigger_lines
from cutesmith.evals.skill_trials.trigger_scores import share_of, trigger_scores
from cutesmith.evals.skill_trials.triggers import Answer, Asking, ask_all, most_dollars_of, request_of

ROOT = Path(__file__).resolve().parents[3]
QUERIES = [TriggerQuery(query=f"query {number}", should_trigger=number < 2) for number in range(4)]
NOTHING = {"text": "I can help without."}


def load(name=resources.SKILL_NAME, **more):
    return {"calls": [{"name": triggers.LOAD, "input": {"name": name}}], **more}


def asked(folder, script, repeats=2, **more):
    model = ScriptedModel(script)
    return asyncio.run(ask_all(Asking(queries=QUERIES, repeats=repeats, **more), model, folder)), model


# ----------------------------------------------------------------------------------------------------------- the forms


def test_our_own_queries_have_the_form_and_are_enough():
    queries = read_triggers(forms.folder() / forms.TRIGGERS)
    counts = Counter(query.should_trigger for query in queries)
    assert counts[True] >= 20 and counts[False] >= 20
    near = " ".join(query.query for query in queries if not query.should_trigger).lower()
    assert all(word in near for word in ("triton", "cuda c++", "cutlass c++", "profiler", "cutile", "explain"))


def test_our_own_evaluations_have_the_form_and_their_files_exist():
    evals = read_evals(forms.folder() / forms.EVALS, ROOT)
    assert len(evals.evals) >= 5 and all(len(item.expectations) >= 2 for item in evals.evals)
    named = {script for item in evals.evals for text in item.expectations for script in re.findall(r"\w+\.py", text)}
    scripts = {path.name for path in (ROOT / "scripts").glob("*.py")}
    assert named - {"kernel.py"} <= scripts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "some that should not"),
        ('[{"query": "a", "should_trigger": true}]', "some that should not"),
        ('[{"query": "a", "should_trigger": "yes"}, {"query": "b", "should_trigger": false}]', "0.should_trigger"),
        ('[{"query": " ", "should_trigger": true}]', "0.query"),
        ('[{"query": "a", "should_trigger": true, "note": 1}]', "0.note"),
        ('[{"query": "a", "should_trigger": true}, {"query": "a", "should_trigger": false}]', "stands there 2 times"),
        ("{", "the file"),
    ],
)
def test_queries_of_another_form_are_refused(tmp_path, text, said):
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)):
        read_triggers(tmp_path / "q.json")


EVAL = {"id": 1, "prompt": "p", "expected_output": "o", "expectations": ["e"]}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"skill_name": "other"}, "the skill's name is"),
        ({"evals": [EVAL, EVAL]}, "1 stands there 2 times"),
        ({"evals": [{**EVAL, "files": ["none.py"]}]}, "has no file none.py"),
        ({"evals": [{**EVAL, "expectations": []}]}, "evals.0.expectations"),
        ({"evals": [{**EVAL, "id": "1"}]}, "evals.0.id"),
        ({"evals": []}, "evals"),
    ],
)
def test_evaluations_of_another_form_are_refused(tmp_path, changed, said):
    form = {"skill_name": resources.SKILL_NAME, "evals": [EVAL]}
    (tmp_path / "e.json").write_text(json.dumps(form))
    assert read_evals(tmp_path / "e.json", tmp_path).evals[0].files == []
    (tmp_path / "e.json").write_text(json.dumps({**form, **changed}))
    with pytest.raises(UsageError, match=re.escape(said)):
        read_evals(tmp_path / "e.json", tmp_path)


# ---------------------------------------------------------------------------------------------------------- the asking


def test_a_model_sees_names_and_descriptions_and_nothing_else_of_the_skill():
    request = request_of("write a kernel", 1, 0)
    manifest = resources.manifest().read_text()
    description = re.search(r"^description: (.+)$", manifest, re.MULTILINE)[1]
    assert f"- {resources.SKILL_NAME}: {description}" in request.system
    assert "references/" not in request.system and "kernel_fn" not in request.system
    assert len(re.findall(r"^- ", request.system, re.MULTILINE)) == 1 + len(triggers.OTHERS) >= 4
    orders = {tuple(re.findall(r"^- ([\w-]+):", request_of("a", 1, n).system, re.MULTILINE)) for n in range(9)}
    assert len(orders) > 5 and {frozenset(order) for order in orders} == {frozenset(triggers.descriptions())}


def test_a_skill_is_triggered_by_a_call_that_loads_it_and_by_no_words(tmp_path):
    script = {
        "1": [load(), load(f" {resources.SKILL_NAME} ")],
        "2": [load("triton-kernels"), {"text": f"I would load {resources.SKILL_NAME}."}],
        "3": [{"calls": [{"name": "other", "input": {"name": resources.SKILL_NAME}}]}, NOTHING],
        "4": [{"calls": [{"name": triggers.LOAD, "input": "no object"}]}, load()],
    }
    answers, _ = asked(tmp_path, script)
    by_query = {query.query: [a.triggered for a in answers if a.query == query.query] for query in QUERIES}
    assert list(by_query.values()) == [[True, True], [False, False], [False, False], [False, True]]
    scores = trigger_scores(answers)
    assert [query.triggers for query in scores.queries] == [True, False, False, True]
    assert (scores.recall.count, scores.recall.of) == (1, 2) and (scores.precision.count, scores.precision.of) == (1, 2)
    assert (scores.specificity.value, scores.right_answers, scores.unstable) == (0.5, 5, 1)
    assert scores.queries[1].others == ("triton-kernels",)


def test_what_a_model_says_is_no_command_to_a_terminal(tmp_path):
    answers, _ = asked(tmp_path, [load("\x1b[2J\u202etriton")] * 2)
    told = "\n".join(trigger_lines(trigger_scores(answers)))
    assert "missed (0 of 2, took  [2J triton): query 0" in told and "\x1b" not in told and "\u202e" not in told


class Failing(ScriptedModel):
    """Answers so many times, then the service is gone."""

    def __init__(self, answers: int) -> None:
        super().__init__([load()] * 9)
        self.left = answers

    async def reply(self, request, listener=lambda kind, text: None) -> Reply:
        if not self.left:
            raise ModelError("the service is gone")
        self.left -= 1
        return await super().reply(request, listener)


def test_answers_are_kept_and_only_the_missing_ones_are_asked_for(tmp_path):
    asking, first = Asking(queries=QUERIES, repeats=2), Failing(5)
    with pytest.raises(ModelError):
        asyncio.run(ask_all(asking, first, tmp_path))
    log = tmp_path / triggers.FILE
    log.write_bytes(log.read_bytes()[:-30])  # the last line was cut by a kill
    second = ScriptedModel([load()] * 9)
    assert len(asyncio.run(ask_all(asking, second, tmp_path))) == 8
    assert [(r.line, r.turn) for r in second.requests] == [(1, 2), (2, 2), (3, 2), (4, 2)]
    other = ScriptedModel([load()] * 9, name="another model")
    assert len(asyncio.run(ask_all(asking, other, tmp_path))) == 8 == len(other.requests)


def test_a_line_that_is_no_answer_is_told(tmp_path):
    asked(tmp_path, [load()] * 2)
    with (tmp_path / triggers.FILE).open("a") as log:
        log.write('{"query": 1}\n')
    with pytest.raises(UsageError, match="line 9: no answer"):
        asked(tmp_path, [load()] * 2)


def test_a_place_that_is_no_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="cannot be made a folder"):
            asked(out, [load()] * 2)


# -------------------------------------------------------------------------------------------------- numbers, dollars


def test_shares_have_wilsons_interval():
    assert share_of(10, 10).interval == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert share_of(9, 10).interval == pytest.approx((0.5958, 0.9821), abs=1e-4)
    assert share_of(0, 0).value is None and share_of(0, 0).interval is None


def test_repeats_of_a_query_do_not_make_the_interval_narrower():
    def answers(repeats):
        return [
            Answer(
                query=query.query,
                should_trigger=query.should_trigger,
                repeat=repeat,
                model="m",
                description="d",
                loaded=(resources.SKILL_NAME,) if query.should_trigger else (),
                stop_reason="end_turn",
            )
            for query in QUERIES
            for repeat in range(repeats)
        ]

    one, many = trigger_scores(answers(1)), trigger_scores(answers(50))
    assert one.recall == many.recall and one.precision == many.precision and many.answers == 200


def test_no_answer_costs_more_than_was_announced(tmp_path):
    name = "claude-opus-4-8"
    price, asking = PRICES[name], Asking(queries=QUERIES, repeats=2)
    bound = most_dollars_of(asking, name)
    request = request_of(QUERIES[0].query, 1, 0)
    characters = len(request.system) + len(json.dumps(list(request.tools))) + len(QUERIES[0].query)
    dear = Usage(cache_write_tokens=characters + 500, output_tokens=triggers.ANSWER_TOKENS)
    dollars = (dear.cache_write_tokens * price.cache_write + dear.output_tokens * price.output) / 1e6
    assert 0.7 * bound < 8 * dollars <= bound
    assert most_dollars_of(asking, "no such model") is None


def test_asking_ends_before_the_limit(tmp_path):
    name = "claude-opus-4-8"
    each = most_dollars_of(Asking(queries=QUERIES, repeats=2), name) / 8
    model = ScriptedModel([load(dollars=each)] * 2, name=name)
    asking = Asking(queries=QUERIES, repeats=2, most_dollars=3.5 * each)
    assert len(asyncio.run(ask_all(asking, model, tmp_path))) == 3


def test_the_command_asks_and_reports(tmp_path, capsys):
    (tmp_path / "q.json").write_text(json.dumps([query.model_dump() for query in QUERIES]))
    (tmp_path / "s.json").write_text(json.dumps({"1": [load()] * 3, "2": [NOTHING] * 3, "*": [NOTHING] * 3}))
    words = ["--triggers", "--agent", f"script:{tmp_path / 's.json'}", "--queries", str(tmp_path / "q.json")]
    assert main([*words, "--plan"]) == 0
    assert "12 answers of script s.json: 2 that should load the skill, 2 that should not" in capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "out"), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "| recall             | 1 of 2" in printed and "- missed (0 of 3): query 1" in printed
    assert main([*words, "--out", str(tmp_path / "out"), "--quiet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scores"]["precision"]["count"] == told["scores"]["precision"]["of"] == 1 and told["done"] == 12
    assert main([*words[:3], "--triggers", "--queries", str(tmp_path / "s.json"), "--plan"]) == 2


def test_the_plan_for_a_model_with_a_price_says_what_it_costs_at_most(capsys):
    assert main(["--triggers", "--plan"]) == 0
    dollars = float(re.search(r"at most ([\d.]+) dollars in all", capsys.readouterr().out)[1])
    assert 1 < dollars < 30
    assert main(["--triggers", "--plan", "--", "--model", "claude-of-nobody"]) == 2

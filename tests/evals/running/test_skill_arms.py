"""Runs whose sessions have the whole skill, none of it, or not one page of it; and what `eval compare` says of them."""

from __future__ import annotations

import json
import re

import pytest

from cutesmith.agent.transcript import read_transcript
from cutesmith.commands import eval_compare, eval_run
from cutesmith.evals.reading import read_attempts, read_facts

PAGE = "epilogues.md"
CALLS = [
    {"name": "search_references", "input": {"query": "epilogue bias residual accumulator coordinates", "limit": 10}},
    {"name": "read_reference", "input": {"address": PAGE}},
    {"name": "read_reference", "input": {"address": "glossary.md#epilogue"}},
    {"name": "find_example", "input": {"query": "gemm epilogue"}},
]
SCRIPT = [{"calls": CALLS}, {"calls": [{"name": "finish", "input": {"summary": "no way", "give_up": True}}]}]
ARMS = {"whole": (), "bare": ("--bare",), "without": ("--without-page", "epilogues")}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """A run of each arm over the same task, by the same scripted model."""
    out = tmp_path_factory.mktemp("arms")
    (out / "script.json").write_text(json.dumps(SCRIPT))
    for arm, options in ARMS.items():
        words = ["--only", "level1/relu", "--agent", f"script:{out / 'script.json'}", "--on", "compile", "--no-cache"]
        assert eval_run.main([*words, "--quiet", "--out", str(out / arm), *options, "--", "--no-draft"]) == 0
    return out


def answers(run):
    """What each tool answered in the run's one session, with whether that was an error."""
    [attempt] = read_attempts(run)
    events = [event for event in read_transcript(run / attempt.transcript) if event["kind"] == "tool"]
    return [(event["text"], event["is_error"]) for event in events[: len(CALLS)]]


@pytest.mark.slow
def test_the_whole_skill_finds_and_reads_the_page(trial):
    found, page, glossary, example = answers(trial / "whole")
    assert PAGE in found[0] and PAGE in glossary[0] and "# " in page[0]
    assert not any(is_error for _, is_error in (found, page, glossary, example))


@pytest.mark.slow
def test_a_hidden_page_is_neither_found_nor_read_nor_named(trial):
    found, page, glossary, example = answers(trial / "without")
    assert len(re.findall(r"^\S+\.md#", found[0], re.M)) == 10 and PAGE not in found[0]
    assert page[1] and "no " in page[0]
    assert not glossary[1] and PAGE not in glossary[0]
    assert not example[1] and PAGE not in example[0]


@pytest.mark.slow
def test_a_bare_session_has_no_tool_that_gives_texts_of_the_skill(trial):
    for call, (text, is_error) in zip(CALLS, answers(trial / "bare"), strict=True):
        assert is_error and text.startswith(f"there is no tool '{call['name']}'")
        assert not any(tool in text.partition("There are:")[2] for tool in ("reference", "example"))


@pytest.mark.slow
def test_the_plan_keeps_the_arm_and_a_comparison_says_which_is_which(trial, capsys):
    assert {arm: read_facts(trial / arm).skill for arm in ARMS} == {
        "whole": "whole",
        "bare": "bare",
        "without": f"without {PAGE}",
    }
    eval_compare.main([str(trial / "bare"), str(trial / "whole")])
    said = capsys.readouterr()
    assert "skill: A has none of it (--bare), B has all of it\n" in said.out and "skill" not in said.err
    eval_compare.main([str(trial / "without"), str(trial / "whole")])
    assert f"skill: A has all without {PAGE}, B has all of it\n" in capsys.readouterr().out
    eval_compare.main([str(trial / "whole"), str(trial / "whole")])
    assert "skill:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agent", "script:{script}", "--without-page", "epilogue"), "no reference page epilogue.md"),
        (("--agent", "script:{script}", "--bare", "--without-page", "faq"), "without any reference"),
        (("--agent", "draft", "--bare"), "only a session with a model takes options"),
        (("--agent", "script:{script}", "--", "--candidates", "0"), "--candidates 0"),
    ],
)
def test_what_cannot_be_left_out_is_told_before_the_run(words, said, tmp_path, capsys):
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    words = [word.replace("{script}", str(tmp_path / "script.json")) for word in words]
    assert eval_run.main(["--only", "level1/relu", "--on", "compile", "--out", str(tmp_path / "none"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "none").exists()

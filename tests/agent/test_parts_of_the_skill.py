"""Sessions without the skill, or without a page of it: what the model is sent, what it can call, what stays hidden."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from dataclasses import asdict

import pytest

from cutesmith.agent.models.scripted_model import ScriptedModel
from cutesmith.agent.run_session import run_session
from cutesmith.agent.session import new_session
from cutesmith.agent.settings import BARE, Settings
from cutesmith.agent.texts.hidden_pages import known_pages, without_pages
from cutesmith.agent.texts.manifest import manifest_body, manifest_for
from cutesmith.agent.texts.prompting import bare_prompt, system_prompt
from cutesmith.commands._agent_options import settings_of
from cutesmith.commands.generate import generate_parser
from cutesmith.devices import Device
from cutesmith.errors import UsageError
from cutesmith.patterns.generation.target import Target
from tests.agent.tool_bench import PROBLEM, ToolBench

EMULATED = Target("sm_90a", None, "", emulated=True)
H200 = Target("sm_90a", Device(0, "NVIDIA H200", (9, 0), "580.1"))
FINISH = {"calls": [{"name": "finish", "input": {"summary": "no way", "give_up": True}}]}


WHOLE = Settings()


def given(*words, base=WHOLE):
    return settings_of(generate_parser().parse_args(["problem.py", "--agent=script:s.json", *words]), base)


def asked(folder, settings):
    """The first request of a session with these settings, as it would be sent."""
    model = ScriptedModel([FINISH])
    with new_session(folder, request="", settings=asdict(settings)) as session:
        session.record("problem", source=PROBLEM, origin="file", audit={"work": {"bytes": 1_000_000, "flops": {}}})
        asyncio.run(run_session(session, settings, model, lambda *_: ""))
    return model.requests[0]


def paragraphs(text):
    """Lines that say something, as opposed to headings and rules of tables."""
    return [line.strip() for line in text.splitlines() if len(line.strip()) > 40]


@pytest.mark.slow
def test_a_bare_session_sends_nothing_of_the_skill_and_has_no_tool_of_it(tmp_path):
    request = asked(tmp_path / "bare", Settings(skill=BARE, on="compile", arch="sm_90a"))
    sent = json.dumps([request.system, request.messages[0], list(request.tools)])
    names = [tool["name"] for tool in request.tools]
    assert names == [
        "view_file",
        "create_file",
        "edit_file",
        "lint_kernel",
        "compile_kernel",
        "verify_kernel",
        "benchmark_kernel",
        "finish",
    ]
    assert [line for line in paragraphs(manifest_body()) if line in request.system] == []
    for word in ("references", "fetch_example", "scripts/", "Workflow", "SKILL", "DEVLOG", "profile_kernel"):
        assert word not in sent, word
    assert "kernel_fn" in request.system and "return torch.relu(x)" in request.system
    first = request.messages[0]["content"][0]["text"]
    assert "does not exist yet" in first and "floor" not in first and "examples" not in first


def test_a_whole_session_sends_all_of_it(tmp_path):
    request = asked(tmp_path / "whole", Settings(on="compile", arch="sm_90a", draft=False))
    assert all(line in request.system for line in paragraphs(manifest_for(PROBLEM)))
    assert {"search_references", "read_reference", "find_example", "note"} <= {tool["name"] for tool in request.tools}
    first = request.messages[0]["content"][0]["text"]
    assert "Nearest examples" in first and "floor" in first


@pytest.mark.parametrize("target", [EMULATED, H200, Target("sm_90a", None, "")])
def test_a_bare_prompt_says_where_it_is_judged_and_names_no_tool_that_it_lacks(target):
    prompt = bare_prompt(PROBLEM, target)
    assert "Where: " in prompt and not re.search(r"profile_kernel|emulate_kernel|search_references|\bnote\b", prompt)
    assert (", then the faster" in prompt) == target.executes


@pytest.mark.sampled(12)
@pytest.mark.parametrize("page", known_pages())
def test_a_hidden_page_is_not_named_and_the_rest_of_the_manifest_stays(page):
    whole = system_prompt(PROBLEM, "", EMULATED)
    prompt = system_prompt(PROBLEM, "", EMULATED, (page,))
    assert page in whole and page not in prompt
    changed = [line for line in difflib.ndiff(whole.splitlines(), prompt.splitlines()) if line.startswith("- ")]
    assert 1 <= len(changed) <= 4
    assert len(whole) - len(prompt) < 250
    others = [other for other in known_pages() if other != page]
    assert [other for other in others if other not in prompt] == []


@pytest.mark.slow
def test_a_hidden_page_is_neither_found_nor_read_nor_told_of(tmp_path):
    page = "epilogues.md"
    whole, bench = ToolBench(tmp_path / "whole"), ToolBench(tmp_path / "hidden", hidden_pages=(page,))
    query = {"query": "epilogue bias residual accumulator coordinates", "limit": 10}
    assert page in whole.call("search_references", **query).text
    found = bench.call("search_references", **query).text
    assert len(re.findall(r"^\S+\.md#", found, re.M)) == 10 and page not in found
    refused = bench.refused("read_reference", address=f"{page}#nothing")
    unknown = bench.refused("read_reference", address="no-such-page.md")
    assert refused == unknown.replace("no-such-page.md", page) and refused.count("epilogues") == 1
    assert page in whole.call("read_reference", address="glossary.md#epilogue").text
    assert page not in bench.call("read_reference", address="glossary.md#epilogue").text


def test_nothing_is_found_when_every_page_is_hidden(tmp_path):
    bench = ToolBench(tmp_path, hidden_pages=(*known_pages(), "README.md"))
    assert bench.call("search_references", query="layout").text.startswith("No section")


def test_what_files_hold_is_shown_to_the_letter(tmp_path):
    bench = ToolBench(tmp_path, hidden_pages=("epilogues.md",))
    bench.call("create_file", path="kernel.py", text="# see `epilogues.md`\n")
    assert "see `epilogues.md`" in bench.call("view_file", path="kernel.py").text


def test_links_and_addresses_of_a_hidden_page_become_words():
    text = "See [fusing](epilogues.md#ways), `epilogues.md` and `faq.md`, or references/epilogues.md#x; my-epilogues.md"
    assert without_pages(text, ["epilogues.md"]) == "See fusing, `faq.md`, or the documentation; my-epilogues.md"


def test_the_transcript_keeps_the_part_of_the_skill_for_a_resumed_session():
    settings = given("--without-page", "epilogues", "--without-page=faq.md")
    assert settings.hidden_pages == ("epilogues.md", "faq.md")
    saved = json.loads(json.dumps(asdict(settings)))
    assert Settings.of(saved) == settings and Settings.of({"agent": "claude"}) == Settings()
    resumed = generate_parser().parse_args(["--resume=DIR", "--max-turns=5"])
    assert settings_of(resumed, Settings.of(saved)).hidden_pages == settings.hidden_pages
    assert settings_of(resumed, given("--bare")).bare
    again = generate_parser().parse_args(["--resume=DIR", "--bare"])
    assert settings_of(again, given("--bare")).bare
    with pytest.raises(UsageError, match="another part of the skill"):
        settings_of(again, Settings())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--without-page", "../../etc/passwd"), "no reference page ../../etc/passwd.md"),
        (("--without-page", "epilogue"), "no reference page epilogue.md"),
        (("--bare", "--candidates=2"), "one line of work"),
        (("--bare", "--without-page=faq"), "without any reference"),
    ],
)
def test_what_cannot_be_left_out_is_told(words, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        given(*words)

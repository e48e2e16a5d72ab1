"""`cutesmith generate … --agent openai:MODEL` from the command line, against a Chat Completions server on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutesmith.agent.transcript import read_transcript
from cutesmith.commands.generate import main
from tests.agent import chat_server as api
from tests.agent.test_generate_claude import PROBLEM

AGENT = f"openai:{api.MODEL}"
TEXT = "x = 1\n"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """A local server that asks for no key, and an empty folder to work in."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_session_is_held_with_a_local_model_and_resumed(monkeypatch, capsys):
    Path("problem.py").write_text(PROBLEM)
    draft = api.answer(thought="Easy.", calls=[("create_file", {"path": "kernel.py", "text": TEXT})])
    finish = api.answer(calls=[("finish", {"summary": "a start", "give_up": True})])
    with api.serving(draft, api.failure(400, "context length exceeded"), finish) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1")
        arguments = ["problem.py", "--agent", AGENT, "--no-draft", "--quiet", "--out", "s"]
        assert main(arguments) != 0
        assert "context length exceeded" in capsys.readouterr().out
        assert main(["--resume", "s", "--json", "--quiet"]) != 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["ending"], verdict["turns"], verdict["dollars"]) == ("finished", 2, None)
    assert verdict["model"] == api.MODEL and Path("s/work/1/kernel.py").read_text() == TEXT
    replies = [event for event in read_transcript(Path("s/transcript.jsonl")) if event["kind"] == "reply"]
    assert replies[0]["content"][0] == {"type": "thinking", "thinking": "Easy."}
    assert server.bodies[2]["messages"][-1]["role"] == "tool"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--agent", AGENT, "--max-dollars", "1"], f"the price of {api.MODEL} is not known"),
        (["--agent", "openai"], "the model has no name"),
        (["--agent", "openai:"], "the model has no name"),
    ],
)
def test_what_cannot_work_is_told_before_a_folder_is_made(arguments, said, capsys):
    Path("problem.py").write_text(PROBLEM)
    assert main(["problem.py", *arguments]) == 2
    assert said in capsys.readouterr().err and not Path("cutesmith-out").exists()

"""`cutesmith generate … --agent claude` from the command line: the real SDK against the Messages API on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutesmith.agent.transcript import read_transcript
from cutesmith.commands.generate import main
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from tests.agent import messages_server as api

PROBLEM = '''"""Twice a tensor."""

import torch


def reference_fn(x):
    return x * 2


def get_inputs(rows=64, columns=256):
    return [torch.randn(rows, columns, device="cuda")]


def get_input_sets():
    yield get_inputs(3, 32)
'''
RANDOM = PROBLEM.replace("x * 2", "x * torch.rand(1)")
DECLINE = api.answer(api.call("decline", {"reason": "a Triton kernel is wanted"}))
WRITE = api.answer(api.thinking("Easy."), api.call("write_problem", {"text": PROBLEM}), usage={"output_tokens": 200})
DRAFT = api.answer(api.text("First."), api.call("create_file", {"path": "kernel.py", "text": "x = 1\n"}))
FINISH = api.answer(api.call("finish", {"summary": "a start", "give_up": True}))


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """A key that is no one's, and an empty folder to work in."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def generate(server, *arguments, key=api.KEY, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server if isinstance(server, str) else server.address)
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    return main([*arguments, "--agent", "claude", "--no-draft", "--quiet"])


def kinds(folder):
    return [event["kind"] for event in read_transcript(Path(folder) / "transcript.jsonl")]


def test_a_sentence_becomes_a_problem_and_is_shown_before_work_begins(monkeypatch, capsys):
    wrong = api.answer(api.call("write_problem", {"text": "import triton\n" + PROBLEM}))
    with api.serving(wrong, WRITE, DRAFT, FINISH) as server:
        assert generate(server, "twice a tensor", "--out", "s", monkeypatch=monkeypatch) == 2
        shown = capsys.readouterr().err
        assert "def reference_fn(x):" in shown and "inputs:" in shown and "--resume s --yes" in shown
        assert not Path("s/problem.py").exists() and len(server.bodies) == 2
        told = server.bodies[1]["messages"][-1]["content"][-1]
        assert told["type"] == "tool_result" and "triton" in json.dumps(told)
        assert generate(server, "--resume", "s", "--yes", "--json", monkeypatch=monkeypatch) != 0
        assert len(server.bodies) == 4, "no turn is paid for twice"
    verdict = json.loads(capsys.readouterr().out)
    assert Path("s/problem.py").read_text() == PROBLEM
    assert verdict["ending"] == "finished" and verdict["turns"] == 4 and verdict["kernel"] == ""
    assert verdict["usage"] == {
        "input_tokens": 400,
        "output_tokens": 260,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    }
    assert verdict["dollars"] == pytest.approx(400 * 4e-6 + 260 * 20e-6)
    system, tools = server.bodies[2]["system"][0]["text"], [tool["name"] for tool in server.bodies[2]["tools"]]
    assert "def reference_fn(x):" in system and "## The contract of kernel.py" in system and "twice a tensor" in system
    assert tools[0] == "search_references" and tools[-1] == "finish" and len(tools) == 21
    assert Path("s/work/1/kernel.py").read_text() == "x = 1\n" and not Path("s/kernel.py").exists()
    assert (
        json.loads(Path("s/result.json").read_text())["ending"] == "finished" and Path("s/report.html").stat().st_size
    )


def test_a_request_that_is_no_kernel_is_declined_in_one_sentence(monkeypatch, capsys):
    with api.serving(DECLINE) as server:
        assert generate(server, "write Triton", "--yes", monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said[0] == "error: this does not ask for a kernel: a Triton kernel is wanted" and len(said) == 2
    folder = Path("cutesmith-out/write_triton-agent")
    assert sorted(path.name for path in folder.iterdir()) == ["transcript.jsonl"], "what was paid for, and nothing else"


BAD = {
    "no key": (["softmax"], 7, "no API key is set"),
    "wrong key": (["softmax"], 7, "the API key is refused"),
    "no network": (["softmax"], 7, "cannot be reached"),
    "unknown model": (["softmax", "--model", "claude-opus-99"], 2, "claude-opus-99 is not a model"),
    "no price": (["softmax", "--model", "claude-opus-99", "--max-dollars", "1"], 2, "price of claude-opus-99"),
    "empty request": ([" "], 2, "the request is empty"),
    "nothing at all": ([], 2, "nothing to generate"),
    "no such file": (["missing.py"], 2, "missing.py: no such file"),
    "no such session": (["--resume", "missing"], 2, "missing holds no session"),
    "folder is a file": (["softmax", "--out", "file/s"], 2, "cannot be made a folder"),
    "read-only folder": (["softmax", "--out", "/proc/s"], 2, "cannot be made a folder"),
    "taken folder": (["softmax", "--out", "."], 2, "is not empty"),
    "bad limit": (["softmax", "--max-dollars", "-1"], 2, "--max-dollars -1: it must be positive"),
    "bad beam": (["softmax", "--beam", "3"], 2, "--beam 3: from 1 to"),
    "bad place": (["softmax", "--arch", "sm_12"], 2, "sm_12"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(name, monkeypatch, capsys):
    arguments, code, sentence = BAD[name]
    Path("file").write_text("")
    key = {"no key": "", "wrong key": api.WRONG_KEY}.get(name, api.KEY)
    with api.serving(DECLINE) as server:
        address = "http://127.0.0.1:9" if name == "no network" else server.address
        assert generate(address, *arguments, key=key, monkeypatch=monkeypatch) == code
        assert server.bodies == [], "nothing was paid for"
    said = capsys.readouterr()
    assert sentence in said.err and said.out == ""
    assert [path.name for path in Path().iterdir()] == ["file"]


@pytest.mark.parametrize(
    "body, code, sentence", [(RANDOM, 2, "random"), ("def reference_fn(:", 2, "problem.py:1: syntax")]
)
def test_a_problem_that_cannot_be_used_is_found_before_anything_is_paid_for(monkeypatch, capsys, body, code, sentence):
    Path("problem.py").write_text(body)
    with api.serving(FINISH) as server:
        assert generate(server, "problem.py", monkeypatch=monkeypatch) == code
        assert server.bodies == []
    assert sentence in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["problem.py"]


def test_auto_without_a_key_is_the_offline_generator(capsys):
    Path("problem.py").write_text("def reference_fn(:")
    assert main(["problem.py", "--agent", "auto"]) == 2
    assert main(["a sentence", "--agent", "auto"]) == 2
    assert "only a model can make a problem of it" in capsys.readouterr().err


SCRIPT = [
    {"calls": [{"name": "create_file", "input": {"path": "kernel.py", "text": "x = 1\n" * 400}}]},
    {"seconds": 60, "calls": []},
    {"calls": [{"name": "finish", "input": {"summary": "s", "give_up": True}}]},
]


def session(tmp_path, *arguments, limit=None):
    """A session in a process of its own, without a model; `limit`: bytes that a file may have, for a full disk."""
    begin = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); " if limit else ""
    program = f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); {begin}"
    program += "import sys; from cutesmith.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "generate", *arguments, "--quiet"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with lend_fork_server() as (variables, descriptors):  # of this process: PyTorch is imported already
        environment = {**os.environ, **variables}
        return subprocess.Popen(command, cwd=tmp_path, env=environment, pass_fds=descriptors, **pipes)


def wait_for(folder, kind, count, process):
    """Until the transcript has so many events of a kind."""
    until = time.monotonic() + 100
    while time.monotonic() < until and process.poll() is None:
        if (folder / "transcript.jsonl").exists() and kinds(folder).count(kind) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate())


@pytest.mark.slow
def test_a_session_is_interrupted_killed_resumed_and_survives_a_full_disk(tmp_path):
    """One session through everything: its problem is audited once."""
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    folder = tmp_path / "s"
    begun = session(tmp_path, "problem.py", "--agent", "script:script.json", "--no-draft", "--out", "s")
    wait_for(folder, "request", 2, begun)
    begun.send_signal(signal.SIGINT)
    output, errors = begun.communicate(timeout=100)
    assert begun.returncode == 7 and "interrupted" in output, errors
    assert json.loads((folder / "result.json").read_text())["ending"] == "interrupted"

    killed = session(tmp_path, "--resume", "s")
    wait_for(folder, "request", 3, killed)
    killed.kill()
    killed.communicate()

    (tmp_path / "script.json").write_text(json.dumps([SCRIPT[0], {"text": "x" * 20_000}, SCRIPT[2]]))
    size = (folder / "transcript.jsonl").stat().st_size
    full = session(tmp_path, "--resume", "s", limit=size + 3000)
    _, errors = full.communicate(timeout=100)
    assert full.returncode == 2 and "cannot be written" in errors and "--resume s" in errors
    assert kinds(folder)[-1] == "request", "the answer that did not fit is not there"

    ended = session(tmp_path, "--resume", "s", "--json")
    output, errors = ended.communicate(timeout=100)
    assert json.loads(output)["ending"] == "finished", errors
    assert kinds(folder).count("reply") == 3 and (folder / "work/1/kernel.py").read_text() == "x = 1\n" * 400

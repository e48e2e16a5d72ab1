"""`make live` against the Messages API on loopback: whole sessions, what is said first, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cutesmith.verdicts import ExitCode
from evals.agent_sessions import live_sessions
from tests.agent import messages_server as api

KERNEL = "import cutlass.cute as cute\n\n\ndef kernel_fn(logits):\n    return cute.no_such_name(logits)\n"
BEGUN = api.answer(
    api.thinking("A softmax needs the maximum of its row."),
    api.call("create_file", {"path": "kernel.py", "text": KERNEL}, "toolu_1"),
    api.call("lint_kernel", {}, "toolu_2"),
)
GIVEN_UP = api.answer(api.call("finish", {"summary": "No time is left.", "give_up": True}, "toolu_3"))


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A key that is no one's, and no profile of the SDK."""
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_problem_is_worked_on_through_the_api(tmp_path, monkeypatch, capsys):
    with api.serving(BEGUN, GIVEN_UP) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.address)
        monkeypatch.setenv("ANTHROPIC_API_KEY", api.KEY)
        code = live_sessions.main(["softmax", "--dollars=0.5", f"--out={tmp_path}", "--", "--no-draft"])
    said = capsys.readouterr()
    assert code == 1, said.err  # nothing was delivered
    assert "1 session with claude-opus-5-5, at most 0.50 dollars each" in said.err.splitlines()[0]
    (run,) = tmp_path.iterdir()
    (row,) = json.loads((run / "summary.json").read_text())["sessions"]
    assert (row["problem"], row["exit_code"], row["turns"], row["tokens"]) == ("softmax", ExitCode.LINT, 2, 240)
    assert row["dollars"] == 2 * (100 * 4 + 20 * 20) / 1e6  # the price table's input and output of this model
    assert "softmax" in said.out and f"written: {run}" in said.out
    assert len(server.bodies) == 2 and "softmax" in json.dumps(server.bodies[0]["system"])
    result = server.bodies[1]["messages"][-1]["content"]
    assert "CS101" in json.dumps(result) and [block["tool_use_id"] for block in result[:2]] == ["toolu_1", "toolu_2"]
    settings = json.loads((run / "softmax" / "transcript.jsonl").read_text().splitlines()[0])["settings"]
    assert settings["limits"]["dollars"] == 0.5 and settings["draft"] is False


WAITING = """
import signal, sys
from evals.agent_sessions.live_sessions import run_command
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests were started with it ignored
print(run_command([sys.executable, "-c", sys.argv[1]]))
"""
ENDING = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.5), sys.exit(5)))
print("begun", file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_ctrl_c_lets_the_session_end_by_itself():
    command = [sys.executable, "-c", WAITING, ENDING]
    root = Path(live_sessions.__file__).parent.parent
    with subprocess.Popen(command, cwd=root, start_new_session=True, stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr.readline() == "begun\n"
        asleep(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=100) == ("(5, True)\n", "")


def asleep(pid: int) -> None:
    """Until a process sleeps: one whose child has begun to run then waits for nothing but that child's end."""
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "S":
        assert time.monotonic() < end
        time.sleep(0.01)


def test_without_a_key_one_sentence(tmp_path):
    command = [sys.executable, live_sessions.__file__, f"--out={tmp_path / 'out'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == ExitCode.UNAVAILABLE and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "ANTHROPIC_API_KEY" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argument", "word"),
    [
        ("--dollars=0", "is not a limit"),
        ("--dollars=nan", "is not a limit"),
        ("--model=claude-unheard-of", "is not a limit"),
        ("no_such", "cumulative_sum"),
    ],
)
def test_what_is_no_limit_and_what_is_no_problem(tmp_path, monkeypatch, capsys, argument, word):
    monkeypatch.setenv("ANTHROPIC_API_KEY", api.KEY)
    assert live_sessions.main([argument, f"--out={tmp_path / 'out'}"]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert word in said.err and said.out == ""
    assert not (tmp_path / "out").exists()


def test_a_row_of_a_verified_kernel(tmp_path):
    result = tmp_path / "result.json"
    verdict = {
        "status": "verified",
        "median_us": 61.257,
        "floor_percent": 93.6,
        "speedups": {"eager": 2.5, "other": None},
    }
    result.write_text(json.dumps({**verdict, "usage": {"input_tokens": 90_000, "output_tokens": 900}, "dollars": 0.41}))
    row = live_sessions.row_of("softmax", 0, result, 61.04)
    shown = dict(zip(live_sessions.COLUMNS, live_sessions.cells(row), strict=True))
    assert shown["median_us"] == "61.26" and shown["floor_percent"] == "94" and shown["speedups"] == "eager 2.50x"
    assert shown["tokens"] == "90,900" and shown["dollars"] == "0.4100" and shown["seconds"] == "61.0"


def test_a_session_that_died_has_its_exit_code(tmp_path):
    assert live_sessions.row_of("softmax", -9, tmp_path / "result.json", 1.0)["status"] == "exit -9"

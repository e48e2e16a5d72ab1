"""`make live` against the Messages API on loopback: whole sessions, what is said first, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from cutesmith.verdicts import ExitCode
from evals import live_sessions
from tests.agent import messages_server as api

KERNEL = "import cutlass.cute as cute\n\n\ndef kernel_fn(logits):\n    return cute.no_such_name(logits)\n"
BEGUN = api.answer(
    api.thinking("A softmax needs the maximum of its row."),
    api.call("create_file", {"path": "kernel.py", "text": KERNEL}, "toolu_1"),
    api.call("lint_kernel", {}, "toolu_2"),
)
GIVEN_UP = api.answer(api.call("finish", {"summary": "No time is left.", "give_up": True}, "toolu_3"))


def live(*arguments, address="http://127.0.0.1:9", key=api.KEY):
    """The program as a process: no key without one, and no other address than loopback."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
    given = {"HOME": "/nonexistent", "ANTHROPIC_BASE_URL": address, **({"ANTHROPIC_API_KEY": key} if key else {})}
    command = [sys.executable, live_sessions.__file__, *map(str, arguments)]
    return subprocess.run(command, env={**inherited, **given}, capture_output=True, text=True, timeout=110)


def test_a_problem_is_worked_on_through_the_api(tmp_path):
    with api.serving(BEGUN, GIVEN_UP) as server:
        done = live("softmax", "--dollars=0.5", f"--out={tmp_path}", "--", "--no-draft", address=server.address)
    assert done.returncode == 1, done.stderr  # nothing was delivered
    assert "1 session with claude-opus-4-8, at most 0.50 dollars each" in done.stderr.splitlines()[0]
    (run,) = tmp_path.iterdir()
    (row,) = json.loads((run / "summary.json").read_text())["sessions"]
    assert (row["problem"], row["exit_code"], row["turns"], row["tokens"]) == ("softmax", ExitCode.LINT, 2, 240)
    assert row["dollars"] == 2 * (100 * 5 + 20 * 25) / 1e6  # the price table's input and output of this model
    assert "softmax" in done.stdout and f"written: {run}" in done.stdout
    assert len(server.bodies) == 2 and "softmax" in json.dumps(server.bodies[0]["system"])
    result = server.bodies[1]["messages"][-1]["content"]
    assert "CS101" in json.dumps(result) and [block["tool_use_id"] for block in result[:2]] == ["toolu_1", "toolu_2"]
    settings = json.loads((run / "softmax" / "transcript.jsonl").read_text().splitlines()[0])["settings"]
    assert settings["limits"]["dollars"] == 0.5 and settings["draft"] is False


def test_ctrl_c_lets_the_session_end_by_itself():
    ending = "import signal, sys, time; signal.signal(2, lambda *_: (time.sleep(0.5), sys.exit(5)))"
    session = f"{ending}; print('begun', file=sys.stderr, flush=True); time.sleep(60)"
    child = f"[sys.executable, '-c', {session!r}]"
    waiting = f"import sys; from evals.live_sessions import run_command; print(run_command({child}))"
    command = [sys.executable, "-c", waiting]
    root = Path(live_sessions.__file__).parent.parent
    with subprocess.Popen(command, cwd=root, start_new_session=True, stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=30) == ("(5, True)\n", "")


def test_without_a_key_one_sentence(tmp_path):
    done = live(f"--out={tmp_path / 'out'}", key="")
    assert done.returncode == ExitCode.UNAVAILABLE and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "ANTHROPIC_API_KEY" in done.stderr
    assert not (tmp_path / "out").exists()


def test_what_is_no_limit_and_what_is_no_problem(tmp_path):
    for arguments, word in (
        (["--dollars=0"], "no limit"),
        (["--dollars=nan"], "no limit"),
        (["--model=claude-unheard-of"], "no limit"),
        (["no_such"], "cumulative_sum"),
    ):
        done = live(*arguments, f"--out={tmp_path / 'out'}")
        assert done.returncode == ExitCode.USAGE and word in done.stderr, done.stderr
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

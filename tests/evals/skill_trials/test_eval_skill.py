"""`cutesmith eval skill` as people call it: sessions with scripts that act differently in each arm; Claude's API."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith import resources
from cutesmith.evals.skill_trials import triggers
from cutesmith.evals.skill_trials.forms import TriggerQuery
from cutesmith.evals.skill_trials.triggers import Asking, ask_all
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from tests.agent import messages_server as api
from tests.agent.asking import model_of
from tests.agent.tool_bench import PROBLEM

ROOT = Path(__file__).resolve().parents[3]
PAGE = "patterns-elementwise.md"


def turn(dollars, *calls, **about):
    named = [{"name": name, "input": given} for name, given in calls]
    return {"calls": named, "usage": {"input_tokens": 100, "output_tokens": 10}, "dollars": dollars, **about}


GIVE_UP = ("finish", {"summary": "there is no way", "give_up": True})
SCRIPTS = {
    "with": [turn(0.04, ("read_reference", {"address": PAGE})), turn(0.01, GIVE_UP)],
    "bare": [turn(0.01, ("read_reference", {"address": PAGE})), turn(0.01, GIVE_UP)],
    "without-patterns-elementwise": [turn(0.02, ("read_reference", {"address": PAGE}), GIVE_UP)],
}


@pytest.mark.timeout(300)
def test_sessions_of_every_arm_are_run_measured_and_gone_on_with(write_file, tmp_path):
    write_file(PROBLEM, "tasks/level1/relu.py")
    for arm, script in SCRIPTS.items():
        write_file(json.dumps(script), f"scripts/{arm}/level1/relu.json")
    agent = f"script:{tmp_path / 'scripts'}/{{arm}}/{{task}}.json"
    out = tmp_path / "trial"
    words = ("--suite", str(tmp_path / "tasks"), "--agent", agent, "--repeats", "1", "--on", "compile", "--jobs", "1")
    words += ("--with", "--without", "--ablate", PAGE, "--out", str(out), "--json")
    done = eval_skill(*words, "--", "--no-draft")
    assert done.returncode == 0, done.stderr
    assert "3 sessions with script:" in done.stderr and "no session costs anything" in done.stderr
    told = json.loads(done.stdout)
    assert (told["done"], told["runs"], told["dollars"]) == (3, 3, 0.09)
    arms = {arm["arm"]: arm for arm in told["findings"]["arms"]}
    assert {arm: (about["turns_a_session"], about["dollars"]) for arm, about in arms.items()} == {
        "with": (2, 0.05),
        "bare": (2, 0.02),
        "without-patterns-elementwise": (1, 0.02),
    }
    read = {use["page"]: use["reads"] for use in told["findings"]["pages"]}
    assert read[PAGE] == 1 and sum(read.values()) == 1
    assert first_answer(out, "with").startswith(f"{PAGE} has ")
    assert first_answer(out, "bare").startswith("there is no tool 'read_reference'")
    assert first_answer(out, "without-patterns-elementwise").startswith(f"there is no reference page {PAGE}")
    assert PAGE not in first_answer(out, "without-patterns-elementwise").partition("There are:")[2]
    assert told == json.loads((out / "result.json").read_text())
    assert "Which pages earn their tokens" in (out / "report.md").read_text()
    again = eval_skill("--resume", "--out", str(out), "--quiet")
    assert again.returncode == 0 and "3 of 3 runs are whole" in again.stdout and "run 1" not in again.stderr


def eval_skill(*words):
    command = [sys.executable, "-m", "cutesmith", "eval", "skill", *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC")}
    told = {"capture_output": True, "text": True, "timeout": 280}
    with lend_fork_server() as (variables, descriptors):  # of this process: PyTorch is imported already
        return subprocess.run(command, cwd=ROOT, env={**environment, **variables}, pass_fds=descriptors, **told)


def first_answer(out, arm):
    path = out / "runs" / arm / "0" / "kernels" / "level1" / "relu" / "0" / "transcript.jsonl"
    events = map(json.loads, path.read_text().splitlines())
    return next(event["text"] for event in events if event["kind"] == "tool")


def test_claude_is_asked_through_the_messages_api(tmp_path):
    chosen = api.answer(api.call(triggers.LOAD, {"name": resources.SKILL_NAME}))
    left_alone = api.answer(api.text("A page needs no kernel."))
    queries = [
        TriggerQuery(query="write a kernel", should_trigger=True),
        TriggerQuery(query="a page", should_trigger=False),
    ]
    with api.serving(chosen, left_alone) as server:
        model = model_of(server, max_tokens=triggers.ANSWER_TOKENS)
        answers = asyncio.run(ask_all(Asking(queries=queries, repeats=1), model, tmp_path))
        bodies = list(server.bodies)
    assert [answer.triggered for answer in answers] == [True, False]
    assert all(answer.dollars > 0 and answer.usage["output_tokens"] > 0 for answer in answers)
    assert [body["messages"][-1]["content"][0]["text"] for body in bodies] == ["write a kernel", "a page"]
    assert all(body["max_tokens"] == triggers.ANSWER_TOKENS for body in bodies)

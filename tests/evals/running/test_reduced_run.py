"""`eval run --reduced` and `--time-limit`: what is found when a task's turn comes, and what is ended on its way."""

from __future__ import annotations

import json
import time

import pytest

from cutesmith.evals.engines.instant_engine import InstantEngine
from cutesmith.evals.keys import sha256
from tests.evals.running.judged_runs import SMALLER, judge, plan, results, run, saying, verdict
from tests.evals.running.test_eval_run import BROKEN, eval_run

PROBLEM = """\
import torch
rows, columns = 4096, 65536
def reference_fn(x):
    return torch.relu(x)
def get_inputs():
    return [torch.randn(rows, columns, device="cuda")]
"""
NEVER_LOADED = "import time\ntime.sleep(600)\ndef kernel_fn(x):\n    return x\n"
pytestmark = pytest.mark.timeout(300)


def test_a_task_is_reduced_when_its_turn_comes_once_for_all_its_samples(tmp_path):
    a_plan, answer = plan(tmp_path, 2, "draft", samples=3, reduced=True), saying("")
    assert run(a_plan, tmp_path / "run", answer).complete
    first, second = (task.id for task in a_plan.suite.tasks)
    assert [unit for unit, stage in answer.asked if stage == "reduce"] == [f"{first}#0", f"{second}#0"]
    assert {line["problem_sha256"] for line in results(tmp_path / "run").values()} == {sha256(SMALLER)}
    assert (tmp_path / "run" / "problems" / f"{first}.py").read_bytes() == SMALLER


def test_what_an_earlier_part_of_the_run_found_is_taken_as_it_is(tmp_path):
    a_plan, answer = plan(tmp_path, 2, reduced=True), saying("")
    there = tmp_path / "run" / "problems" / f"{a_plan.suite.tasks[0].id}.py"
    there.parent.mkdir(parents=True)
    there.write_text("# found before\n")
    run(a_plan, tmp_path / "run", answer)
    lines = results(tmp_path / "run")
    found = [lines[task.id, 0]["problem_sha256"] for task in a_plan.suite.tasks]
    assert found == [sha256(b"# found before\n"), sha256(SMALLER)]
    assert [stage for _, stage in answer.asked].count("reduce") == 1


def test_sizes_that_could_not_be_looked_for_leave_the_attempt_open(tmp_path):
    said = verdict("reduce", 7, "unavailable")
    tally = run(
        plan(tmp_path, 2, reduced=True), tmp_path / "run", saying("reduce", task="task 1", verdicts={"reduce": said})
    )
    assert tally.done == 1 and tally.open == {"level2/task 1#0": "reduce says unavailable"}


@pytest.mark.slow
def test_the_plan_has_the_hash_of_the_task_and_each_line_that_of_its_copy(write_file, tmp_path):
    write_file(PROBLEM, "tasks/level1/relu.py")
    options = ("--agent", "draft", "--configurations", 1, "--on", "compile", "--no-cache", "--jobs", 2)
    out = tmp_path / "run"
    done = eval_run("--suite", tmp_path / "tasks", "--reduced", *options, "--out", out)
    assert done.returncode == 0, done.stderr
    (planned,) = json.loads((out / "run.json").read_text())["tasks"]
    (line,) = results(out).values()
    copy = (out / "problems" / "level1" / "relu.py").read_bytes()
    assert b"rows, columns = (16, 16)" in copy and line["problem_sha256"] == sha256(copy)
    assert planned["sha256"] == sha256(PROBLEM.encode()) and line["status"] == "compiled"


def test_what_is_on_its_way_at_the_time_limit_has_no_line_and_is_judged_by_a_resumed_run(tmp_path):
    def slow(job):
        time.sleep(0.05)
        return judge(job)

    tally = run(plan(tmp_path, 30, seconds=0.5), tmp_path / "run", engine=InstantEngine(slow, slots=1))
    assert tally.out_of_time and tally.cut_off and 0 < tally.done < 30 - len(tally.cut_off)
    assert len(results(tmp_path / "run")) == tally.done
    again = run(plan(tmp_path, 30), tmp_path / "run")
    assert again.complete and not again.cut_off and len(results(tmp_path / "run")) == 30


@pytest.mark.slow
def test_the_time_limit_ends_what_is_being_judged_and_a_resumed_run_judges_it(write_file, tmp_path):
    for name, kernel in (("endless", NEVER_LOADED), ("quick", BROKEN)):
        write_file(PROBLEM, f"tasks/level1/{name}.py")
        write_file(kernel, f"made/{name}.py")
    options = ("--suite", tmp_path / "tasks", "--agent", f"dir:{tmp_path / 'made'}", "--on", "compile", "--no-cache")
    began = time.monotonic()
    done = eval_run(*options, "--jobs", 6, "--time-limit", 8, "--out", tmp_path / "run", "--json")
    assert done.returncode == 6 and time.monotonic() - began < 60, done.stderr
    said = json.loads(done.stdout)
    assert (said["done"], said["cut_off"], said["open"]) == (1, ["level1/endless#0"], {})
    assert "out of time, 1 ended on their way; go on with" in said["summary"]
    assert list(results(tmp_path / "run")) == [("level1/quick", 0)]
    write_file(BROKEN, "made/endless.py")
    resumed = eval_run("--resume", "--time-limit", 200, "--out", tmp_path / "run")
    assert resumed.returncode == 0 and len(results(tmp_path / "run")) == 2, resumed.stderr

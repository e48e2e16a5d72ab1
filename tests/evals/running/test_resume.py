"""A run that was killed, interrupted, or met a full disk goes on: nothing is lost, nothing finished is repeated."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.errors import UsageError
from cutesmith.evals.engines.instant_engine import InstantEngine
from cutesmith.evals.reading import read_facts
from cutesmith.evals.records import Library
from cutesmith.evals.running.folder import RunFolder
from evals.studies import run_agreement
from tests.evals.running import killed_runs
from tests.evals.running.judged_runs import execute, judge, plan, results, run, saying

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_killed_at_every_write_and_resumed_it_comes_to_the_same():
    """In memory where there is such a folder: every write waits for its disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        command = [sys.executable, "-m", killed_runs.__name__, folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert found["kills"] >= 2 * found["writes"] > 20


def test_what_is_finished_is_not_asked_for_again_and_what_is_open_is(tmp_path):
    a_plan, answer = plan(tmp_path, 4), saying("")
    run(a_plan, tmp_path / "run")
    file = tmp_path / "run" / "results.jsonl"
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    for path in (tmp_path / "run" / "verdicts").iterdir():
        path.unlink()
    assert run(a_plan, tmp_path / "run", answer).complete
    assert {unit for unit, _ in answer.asked} == {task.id + "#0" for task in a_plan.suite.tasks[2:]}
    assert file.read_bytes().startswith(b"".join(lines[:2])) and len(results(tmp_path / "run")) == 4


def test_a_line_that_is_no_attempt_is_said_and_judged_again(tmp_path, capsys):
    a_plan = plan(tmp_path, 3)
    execute(a_plan, tmp_path / "run")
    file = tmp_path / "run" / "results.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "{broken", lines[2]]) + "\n")
    verdict = execute(a_plan, tmp_path / "run", resume=True)
    assert "line 2 is not an attempt" in capsys.readouterr().err
    assert verdict.done == 3 and len(file.read_text().splitlines()) == 4


def test_a_run_describes_itself_and_what_it_came_to(tmp_path):
    verdict = execute(plan(tmp_path, 3), tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert verdict.exit_code == 0 and about["summary"]["done"] == about["summary"]["solved"] == 3
    assert [task["id"] for task in about["tasks"]] == ["level1/task 0", "level1/task 2", "level2/task 1"]
    assert about["settings"]["judge"]["arch"] == "sm_90a" and about["machine"]["device"] == "a GPU"
    assert verdict.gpu.held_s == 1.0 and verdict.gpu.timed_s == 1.0 and len(about["windows"]) == 1


def test_run_json_names_the_libraries_of_each_task_and_an_older_one_is_completed(tmp_path):
    a_plan, file = plan(tmp_path, 2), tmp_path / "run" / "run.json"
    functions = [Library(path=Path(name), function="f", data=b"") for name in ("quack.py", "other.py")]
    first, other = a_plan.suite.tasks
    tasks = (replace(first, libraries=tuple(functions)), other)
    a_plan = replace(a_plan, suite=replace(a_plan.suite, tasks=tasks))
    execute(a_plan, tmp_path / "run")
    whole = json.loads(file.read_text())
    assert [task["libraries"] for task in whole["tasks"]] == [["quack.py:f", "other.py:f"], []]
    older = [{name: said for name, said in task.items() if name != "libraries"} for task in whole["tasks"]]
    file.write_text(json.dumps({**whole, "tasks": older}))
    assert [task.libraries for task in read_facts(tmp_path / "run").tasks] == [None, None]
    lines = tmp_path / "run" / "results.jsonl"
    lines.write_text(lines.read_text().splitlines(keepends=True)[0])
    assert execute(a_plan, tmp_path / "run", resume=True).done == 2
    assert json.loads(file.read_text())["tasks"] == whole["tasks"]


def test_wall_time_of_a_process_that_was_killed_counts_until_its_last_result(tmp_path):
    a_plan, file = plan(tmp_path, 2), tmp_path / "run" / "run.json"
    execute(a_plan, tmp_path / "run")
    about = json.loads(file.read_text())
    last = (tmp_path / "run" / "results.jsonl").stat().st_mtime
    file.write_text(json.dumps({**about, "windows": [{"begin": last - 100.0, "end": None}]}))
    verdict = execute(a_plan, tmp_path / "run", resume=True)
    assert 100.0 <= verdict.gpu.window_s < 110.0 and verdict.gpu.held_s == 1.0


def test_a_run_is_not_begun_again_and_resumed_as_it_was_begun(tmp_path):
    execute(plan(tmp_path, 2), tmp_path / "run")
    with pytest.raises(UsageError, match="holds a run"):
        execute(plan(tmp_path, 2), tmp_path / "run")
    with pytest.raises(UsageError, match=r"another samples: 1, not 2"):
        execute(plan(tmp_path, 2, samples=2), tmp_path / "run", resume=True)


def test_two_runs_cannot_work_in_one_folder(tmp_path):
    with RunFolder(tmp_path / "run"), pytest.raises(UsageError, match="in use by another process"):
        run(plan(tmp_path, 1), tmp_path / "run")


class Interrupting(InstantEngine):
    """Ctrl-C once two attempts are done."""

    def completed(self, seconds):
        self.seen = getattr(self, "seen", 0) + 1
        if self.seen > 9:
            raise KeyboardInterrupt
        return super().completed(seconds)


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    a_plan = plan(tmp_path, 5)
    engine = Interrupting(judge, slots=1)
    verdict = execute(a_plan, tmp_path / "run", engine=engine)
    assert verdict.interrupted and 0 < verdict.done < 5 and engine.closed
    assert f"cutesmith eval run --resume --out {tmp_path / 'run'}" in verdict.summary
    assert execute(a_plan, tmp_path / "run", resume=True).solved == 5


FILLS_THE_DISK = """
import resource, signal, sys
from pathlib import Path
from tests.evals.running.judged_runs import plan, run
from cutesmith.append_log import LogWriteError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
root = Path(sys.argv[1])
a_plan = plan(root, 4)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 8000))
try:
    run(a_plan, root / "run")
except LogWriteError as error:
    print(int(error.exit_code), error)
"""


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(tmp_path):
    """RLIMIT_FSIZE stands for the disk: a write stops in the middle of the line."""
    command = [sys.executable, "-c", FILLS_THE_DISK, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("2 ") and "cannot be written: File too large" in done.stdout, done.stderr
    assert f"cutesmith eval run --resume --out {tmp_path / 'run'}" in done.stdout
    before = (tmp_path / "run" / "results.jsonl").read_bytes()
    assert before and before.endswith(b"\n")
    assert run(plan(tmp_path, 4), tmp_path / "run").solved == 4
    assert (tmp_path / "run" / "results.jsonl").read_bytes().startswith(before) and len(results(tmp_path / "run")) == 4


@pytest.mark.slow
def test_memory_does_not_grow_with_the_results(tmp_path):
    """A small one of evals/studies/bench_controller_memory.py; seven kilobytes kept of each result would be seen."""
    out = tmp_path / "memory.json"
    study = ROOT / "evals" / "studies" / "bench_controller_memory.py"
    command = [sys.executable, study, "--results", "300", "--out", out]
    if not Path("/dev/shm").is_dir():
        command += ["--scratch", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    measured = json.loads(out.read_text())
    assert measured["results"] == 300 and measured["second_half_mib"] < 1.0


def test_two_runs_agree_unless_a_verdict_or_a_median_differs(tmp_path, capsys):
    a_plan = plan(tmp_path, 4)
    for name in ("one", "two"):
        run(a_plan, tmp_path / name)

    def agreement(*runs):
        return run_agreement.main([str(path) for path in runs]), capsys.readouterr().out

    code, said = agreement(tmp_path / "one", tmp_path / "two")
    assert code == 0 and '"verdicts_agree": 1.0' in said and '"medians_within": 1.0' in said and '"compared": 4' in said
    file = tmp_path / "two" / "results.jsonl"
    whole = file.read_text()
    file.write_text(whole.replace('"median_us":2.0', '"median_us":2.1', 1))
    code, said = agreement(tmp_path / "one", tmp_path / "two")
    assert code == 1 and '"medians_within": 0.75' in said and '"largest_difference": 0.05' in said
    file.write_text(whole.replace('"correct":true', '"correct":false', 1))
    code, said = agreement(tmp_path / "one", tmp_path / "two")
    assert code == 1 and "flipped: level1/task 0 #0" in said

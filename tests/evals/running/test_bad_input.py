"""What should not be handed to a run and will be: it has its verdict or one sentence, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace

import pytest
import torch

from cutesmith.append_log import LogWriteError
from cutesmith.commands.eval_run import main
from cutesmith.errors import UsageError
from cutesmith.evals.engines.instant_engine import report
from cutesmith.evals.engines.jobs import VERIFY
from cutesmith.evals.engines.local_engine import executed
from cutesmith.evals.engines.slot import LostJobError
from cutesmith.evals.engines.stages import said
from cutesmith.evals.reading import read_attempts
from cutesmith.evals.records import Suite
from cutesmith.evals.running import outcomes
from cutesmith.evals.running.screen import PlainLines
from cutesmith.evals.running.sources import parse_source
from cutesmith.evals.running.summary import lines
from cutesmith.evals.scores.outcomes import read_run
from cutesmith.evals.settings import JudgeSettings
from cutesmith.evals.suites import load_suite
from cutesmith.judge.reference_side.problem_calls import call_of_file
from cutesmith.verdicts import ExitCode, VerifyVerdict
from tests.evals.running.judged_runs import execute, judge, plan, results, run, saying, verdict

HALF = "half \ud800 of a pair"
NAME = os.fsdecode(b"caf\xe9")  # as a disk holds it, and no UTF-8
PROBLEM = "def reference_fn(x):\n    return x\n\ndef get_inputs():\n    return []\n"


# Text that UTF-8 cannot hold


def test_a_kernel_that_raises_half_a_surrogate_pair_ends_no_run(tmp_path):
    folder = tmp_path / "run"
    crashed = VerifyVerdict(exit_code=ExitCode.CRASHED, summary=HALF, path=HALF, ran_on="gpu", log_tail=HALF)

    def raising(job):
        return report(job, verdicts={"verify": said("verify", lambda: crashed)}) if job.stage == VERIFY else judge(job)

    assert run(plan(tmp_path, 3), folder, raising).complete
    lines = results(folder).values()
    assert [line["summary"] for line in lines] == ["half \\ud800 of a pair"] * 3
    assert run(plan(tmp_path, 3), folder, raising).complete and len(read_run(folder).outcomes) == 3


class Dying:
    """A slot whose process ends."""

    name = "cpu0"

    def run(self, job):
        raise LostJobError("it ended", hint=HALF)


def test_what_a_lost_judge_said_may_be_no_utf8_either(tmp_path):
    def lost(job):
        return executed(Dying(), job)

    assert run(plan(tmp_path, 1), tmp_path / "run", lost).complete
    assert "half \ufffd of a pair" in next(iter(results(tmp_path / "run").values()))["summary"]


def test_a_folder_of_kernels_may_be_called_anything(tmp_path):
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / "task 0.py").write_text("kernel")
    a_plan = plan(tmp_path, 1, agent=f"dir:{folder}")
    assert execute(a_plan, tmp_path / "run").solved == 1 and execute(a_plan, tmp_path / "run", resume=True).done == 1
    assert parse_source(f"dir:{folder}").name == "dir:caf\\udce9"


def test_a_task_whose_name_is_no_utf8_is_refused_in_one_sentence(tmp_path, capsys):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / f"{NAME}.py").write_text(PROBLEM)
    with pytest.raises(UsageError, match="name is not UTF-8") as refused:
        load_suite(tmp_path / "suite")
    assert str(refused.value).encode() and refused.value.hint == "Rename the file."


# A problem that is larger than the machine

TOO_MUCH = "the problem cannot be used: the reference used more than 9.3 GiB of host memory"
EMULATED = JudgeSettings(on="emulator")


def filling(stage: str, times: int, code: int = 2):
    """A judge that finds so often too little memory for task 0."""
    met = verdict("verify", code, "usage", summary=TOO_MUCH, mechanism="memory limit")
    made = verdict("generate", code, "usage", summary=f"no kernel held: {TOO_MUCH}", tried=[{"verify": met}])
    result = {"generation": made} if stage == "draft" else {"verdicts": {stage: met}}
    return saying(stage, task="task 0", times=times, **result)


def test_what_finds_room_once_nothing_is_beside_it_has_its_verdict(tmp_path):
    answer = filling("verify", 1)
    assert run(plan(tmp_path, 4, judge=EMULATED), tmp_path / "run", answer).done == 4
    assert results(tmp_path / "run")["level1/task 0", 0]["status"] == "verified"


@pytest.mark.parametrize(("stage", "agent"), [("verify", ""), ("draft", "draft")])
def test_a_problem_for_which_the_machine_is_too_small_stays_open(tmp_path, stage, agent):
    answer = filling(stage, 99)
    verdict = execute(plan(tmp_path, 3, agent=agent, judge=EMULATED), tmp_path / "run", answer)
    assert (verdict.exit_code, verdict.done) == (7, 2)
    why = verdict.open["level1/task 0#0"]
    assert why.startswith("this machine has too little memory to judge it: ") and why.endswith(TOO_MUCH)
    assert answer.asked.count(("level1/task 0#0", stage)) == 2
    again = execute(plan(tmp_path, 3, agent=agent, judge=EMULATED), tmp_path / "run", resume=True)
    assert again.done == 3 and again.exit_code == 0


def test_what_the_judges_own_side_cannot_allocate_has_met_the_memory_limit():
    def judge():
        call_of_file(lambda: torch.empty(1 << 50), (), "get_inputs")

    found = said("verify", judge)
    assert outcomes.too_little_memory(found).endswith(found.summary) and "you tried to allocate" in found.summary


def test_a_kernel_that_wants_too_much_itself_has_its_verdict(tmp_path):
    answer = filling("verify", 99, code=5)
    assert run(plan(tmp_path, 2, judge=EMULATED), tmp_path / "run", answer).complete
    assert results(tmp_path / "run")["level1/task 0", 0]["exit_code"] == 5


# Tasks that go away


def without(a_plan, name: str):
    """The plan of a suite that lost a task."""
    tasks = tuple(task for task in a_plan.suite.tasks if task.id != name)
    return replace(a_plan, suite=Suite(name=a_plan.suite.name, tasks=tasks))


def test_a_task_that_is_gone_when_a_run_goes_on_still_counts(tmp_path):
    a_plan, folder = plan(tmp_path, 4, seconds=0.0), tmp_path / "run"
    assert execute(a_plan, folder).done == 0
    a_plan = replace(a_plan, seconds=float("inf"))
    less = execute(without(a_plan, "level1/task 2"), folder, resume=True)
    assert (less.exit_code, less.done, less.total) == (7, 3, 4)
    assert less.open == {"level1/task 2#0": "the suite no longer has this task"}
    assert {task.state for task in read_run(folder).tasks} == {"timed", "not attempted"}
    whole = execute(a_plan, folder, resume=True)
    assert (whole.exit_code, whole.done, whole.total) == (0, 4, 4)
    less = execute(without(a_plan, "level1/task 2"), folder, resume=True)  # its result stays
    assert (less.exit_code, less.done, less.total) == (0, 4, 4) and not less.open


def test_a_task_that_was_changed_before_a_run_goes_on_is_named(tmp_path, capsys):
    execute(plan(tmp_path, 2), tmp_path / "run")
    assert not capsys.readouterr().err
    a_plan = plan(tmp_path, 2)
    changed = replace(a_plan.suite.tasks[0], sha256="0" * 64)
    a_plan = replace(a_plan, suite=replace(a_plan.suite, tasks=(changed, a_plan.suite.tasks[1])))
    execute(a_plan, tmp_path / "run", resume=True)
    assert "changed since the run began, earlier results stay: level1/task 0\n" in capsys.readouterr().err


# Files of the run that somebody damaged


def test_keys_and_holds_that_are_none_end_no_run(tmp_path):
    folder = tmp_path / "run"
    execute(plan(tmp_path, 3), folder)
    file, holds = folder / "results.jsonl", folder / "gpu_holds.jsonl"
    edited = [json.loads(line) for line in file.read_text().splitlines()]
    edited[1]["key"] = "no number"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in edited[:2]))
    holds.write_bytes(b'{"gpu": "0", "excl\n\xff\xfe\n[]\n{}\n' + holds.read_bytes())
    verdict = execute(plan(tmp_path, 3), folder, resume=True)
    assert (verdict.done, verdict.exit_code) == (3, 0) and verdict.gpu.held_s == 1.0


# Folders that cannot be written


def test_a_folder_that_somebody_takes_away_on_the_way_is_one_sentence(tmp_path):
    folder = tmp_path / "run"

    def answer(job):
        if "task 2" in job.id:
            shutil.rmtree(folder, ignore_errors=True)
        return judge(job)

    with pytest.raises(LogWriteError, match=r"results\.jsonl was taken away") as gone:
        execute(plan(tmp_path, 3), folder, answer)
    assert gone.value.exit_code == 2


@pytest.mark.parametrize("place", ["a file", "a file/run"])
def test_a_place_where_no_folder_can_be_says_so(tmp_path, place, capsys):
    (tmp_path / "a file").write_text("x")
    (tmp_path / "suite.py").write_text(PROBLEM)
    arguments = ["--suite", str(tmp_path / "suite.py"), "--agent", f"dir:{tmp_path}", "--on", "compile"]
    assert main([*arguments, "--out", str(tmp_path / place)]) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said and "give another --out" in said and "--resume" not in said


# What is printed and written


def test_what_is_open_takes_one_line_each_whatever_a_verdict_says(tmp_path):
    said = "no GPU\nto be had \x1b[31m" + "x" * 500

    def answer(job):
        return report(job, gpu_lost=said).model_copy(update={"lost": said})

    printed = list(lines(execute(plan(tmp_path, 2), tmp_path / "run", answer)))
    shown = [line for line in printed if line.startswith("open: ")]
    assert len(shown) == 2 and all(line.isprintable() and len(line) <= 150 for line in shown) and printed[0]


def test_a_gpu_that_does_not_answer_is_named_once_and_the_others_judge_what_it_had(tmp_path, capsys):
    said, asked = "the GPU does not answer: no CUDA-capable device is detected", []

    def answer(job):
        asked.append(job.id)
        lost = job.stage == VERIFY and len([seen for seen in asked if seen == job.id]) == 2
        return report(job, gpu="host:1", gpu_lost=said).model_copy(update={"lost": said}) if lost else judge(job)

    folder, screen = tmp_path / "run", PlainLines()
    verdict = execute(plan(tmp_path, 3), folder, answer, screen=screen)
    assert verdict.exit_code == 0 and verdict.solved == 3 and verdict.lost_gpus == {"host:1": said}
    assert json.loads((folder / "run.json").read_text())["summary"]["lost_gpus"] == {"host:1": said}
    told = f"lost: host:1: {said}"
    assert capsys.readouterr().err.count(told) == 1 and told in list(lines(verdict))


def test_results_say_when_they_were_finished_to_the_millisecond(tmp_path):
    run(plan(tmp_path, 3), tmp_path / "run")
    moments = [attempt.finished for attempt in read_attempts(tmp_path / "run")]
    assert moments == sorted(moments)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", moment) for moment in moments)


def test_ids_are_given_in_one_go_or_one_by_one(tmp_path, capsys):
    for number in (1, 2, 10):
        path = tmp_path / "checkout" / "KernelBench" / "level1" / f"{number}_Relu.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n")
    (tmp_path / "none").mkdir()
    common = ["--suite", "kernelbench", "--path", str(tmp_path / "checkout"), "--agent", f"dir:{tmp_path / 'none'}"]
    for place, chosen in (("a", ["--ids", "1", "10"]), ("b", ["--only", "1", "--ids", "level1/10*"])):
        assert main([*common, *chosen, "--on", "compile", "--quiet", "--out", str(tmp_path / place)]) == 0
        assert [task.task.id for task in read_run(tmp_path / place).tasks] == ["level1/10_Relu", "level1/1_Relu"]

"""The controller of a run over an engine that answers at once: what becomes of verdicts, losses, copies and tasks."""

from __future__ import annotations

import json

import pytest

from cutesmith.evals.engines.instant_engine import InstantEngine
from cutesmith.evals.engines.jobs import Report, StageResult
from cutesmith.evals.scores.outcomes import UNJUDGED, read_run
from cutesmith.evals.settings import JudgeSettings
from cutesmith.verdicts import Mechanism
from tests.evals.running.judged_runs import failing, judge, kernels, plan, report, results, run, saying, timing, verdict


def only(folder):
    (line,) = results(folder).values()
    return line


def test_a_kernel_that_passes_has_its_times_and_where_all_is_kept(tmp_path):
    tally = run(plan(tmp_path, 1), tmp_path / "run")
    line = only(tmp_path / "run")
    assert (tally.done, tally.solved, tally.complete) == (1, 1, True)
    assert line["correct"] and line["stage"] == "benchmark" and line["ran_on"] == "gpu" and line["worker"] == "gpu0"
    assert line["timings"]["kernel"]["median_us"] == 2.0 and line["timings"]["eager"]["samples_us"] == [4.0, 4.0]
    assert line["timings"]["torch.compile"] == {"error": "it did not compile"}
    assert line["timings"]["library"] == line["timings"]["lib.py:f"]
    assert (tmp_path / "run" / line["kernel"]).read_text() == "kernel 0"
    whole = json.loads((tmp_path / "run" / line["verdicts"]).read_text())
    assert list(whole["verdicts"]) == ["lint", "compile", "verify", "benchmark"]
    assert line["level"] == 1 and line["task"] == "level1/task 0" and line["source"] == "dir:made"


def test_of_several_libraries_the_fastest_counts_and_one_that_failed_says_why(tmp_path):
    wrong = timing("c.py:f", error="no baseline: output 0")
    several = [wrong, timing("a.py:f", 5.0), timing("b.py:f", 4.0)]
    for best, libraries in (("b.py:f", several), ("c.py:f", [wrong])):
        said = verdict("benchmark", timings=[timing("candidate", 2.0), *libraries])
        run(plan(tmp_path, 1), tmp_path / best, saying("benchmark", verdicts={"benchmark": said}))
        line = only(tmp_path / best)
        assert line["timings"]["library"] == line["timings"][best]
    assert line["timings"]["library"] == {"error": "no baseline: output 0"}


@pytest.mark.parametrize(
    ("stage", "code", "status", "correct"),
    [
        ("verify", 1, "wrong_result", False),
        ("verify", 8, "rejected", False),
        ("verify", 5, "crashed", False),
        ("benchmark", 8, "rejected", False),
        ("benchmark", 1, "wrong_result", False),
        ("benchmark", 6, "timed_out", True),  # verified; it could not be timed
    ],
)
def test_what_a_stage_holds_against_a_kernel(tmp_path, stage, code, status, correct):
    run(plan(tmp_path, 1), tmp_path / "run", failing(stage, code, status, rule="R1" if code == 8 else ""))
    line = only(tmp_path / "run")
    assert (line["stage"], line["status"], line["exit_code"], line["correct"]) == (stage, status, code, correct)
    assert line.get("rule", "") == ("R1" if code == 8 else "")


def checking(lint, compiled):
    said = {"lint": verdict("lint", *lint), "compile": verdict("compile", *compiled, archs=[])}
    return saying("check", verdicts=said)


def test_lint_is_advice_and_a_compiler_that_crashed_does_not_decide(tmp_path):
    run(plan(tmp_path, 1), tmp_path / "run", checking((3, "lint"), (5, "crashed")))
    assert only(tmp_path / "run")["correct"]


def test_what_does_not_compile_never_meets_a_gpu(tmp_path):
    answer = checking((), (4, "does_not_compile"))
    run(plan(tmp_path, 1), tmp_path / "run", answer)
    assert only(tmp_path / "run")["status"] == "does_not_compile"
    assert [stage for _, stage in answer.asked] == ["check"]


@pytest.mark.parametrize(("on", "ran_on", "correct"), [("auto", "emulator", True), ("compile", "compile", False)])
def test_without_a_gpu_nothing_is_timed_and_compiled_is_not_correct(tmp_path, on, ran_on, correct):
    answer = failing("verify", 0, "its status", ran_on=ran_on)
    run(plan(tmp_path, 1, judge=JudgeSettings(on=on)), tmp_path / "run", answer)
    line = only(tmp_path / "run")
    assert (line["stage"], line["status"], line["exit_code"]) == ("verify", "its status", 0)
    assert line["correct"] == correct and "timings" not in line


def test_a_missing_kernel_counts_and_the_run_goes_on(tmp_path):
    agent = kernels(tmp_path, 2)
    run(plan(tmp_path, 3, agent), tmp_path / "run")
    lines = results(tmp_path / "run")
    assert [lines[key].get("status") for key in sorted(lines)] == ["passed", "missing", "passed"]
    assert lines["level1/task 2", 0]["exit_code"] == 2 and not lines["level1/task 2", 0]["correct"]


def test_a_task_that_vanishes_or_changes_is_an_attempt_with_that_error(tmp_path):
    a_plan = plan(tmp_path, 3)
    a_plan.suite.tasks[0].path.unlink()
    a_plan.suite.tasks[2].path.write_text("# another task")
    tally = run(a_plan, tmp_path / "run")
    lines = [results(tmp_path / "run")[task.id, 0] for task in a_plan.suite.tasks]
    assert [line["status"] for line in lines] == ["no task", "passed", "no task"]
    assert "No such file" in lines[0]["summary"] and "was changed" in lines[2]["summary"] and tally.complete
    assert [outcome.outcome for outcome in read_run(tmp_path / "run").outcomes] == [UNJUDGED, "timed", UNJUDGED]


def test_the_same_kernel_is_judged_once(tmp_path):
    agent, answer = kernels(tmp_path, 4, text="the same"), saying("")
    a_plan = plan(tmp_path, 1, agent, samples=4)
    for sample in range(4):
        (tmp_path / "made" / "task 0").mkdir(exist_ok=True)
        (tmp_path / "made" / "task 0" / f"{sample}.py").write_text("the same" if sample else "another")
    tally = run(a_plan, tmp_path / "run", answer)
    lines = results(tmp_path / "run")
    assert len(answer.asked) == 6 and tally.cached == 2 and tally.complete
    assert len({line["key"] for line in lines.values()}) == 2
    assert {line["kernel"] for line in lines.values()} == {f"kernels/level1/task 0/{n}/kernel.py" for n in range(4)}


def test_the_offline_generator_is_asked_once_for_all_samples_of_a_task(tmp_path):
    answer = saying("")
    tally = run(plan(tmp_path, 2, "draft", samples=3), tmp_path / "run", answer)
    stages = [stage for _, stage in answer.asked]
    assert stages.count("draft") == stages.count("verify") == 2 and (tally.done, tally.cached) == (6, 4)


@pytest.fixture
def script(tmp_path):
    """The --agent of a scripted session."""
    (tmp_path / "script.json").write_text("[]")
    return f"script:{tmp_path / 'script.json'}"


def test_a_session_is_asked_for_every_sample(tmp_path, script):
    folders = []

    def answer(job):
        if job.stage == "session":
            folders.append(job.folder)
            assert job.agent == script
        return judge(job)

    run(plan(tmp_path, 1, script, samples=2), tmp_path / "run", answer)
    assert folders == [str(tmp_path / "run" / "kernels" / "level1" / "task 0" / str(n)) for n in range(2)]


def test_a_model_that_does_not_answer_leaves_the_attempt_open(tmp_path, script):
    a_plan, silent = plan(tmp_path, 2, script), verdict("agent", 7, "unavailable")
    tally = run(a_plan, tmp_path / "run", saying("session", task="task 0", generation=silent))
    assert not tally.complete and list(tally.open) == ["level1/task 0#0"] and len(results(tmp_path / "run")) == 1
    assert run(a_plan, tmp_path / "run").complete


@pytest.mark.parametrize(
    ("kind", "said", "status", "code"),
    [
        ("script", {"ending": "finished", "exit_code": 7}, "no kernel", 2),  # it judged none: that is its own doing
        ("script", {"ending": "model failed", "exit_code": 7}, "no kernel", 2),  # no more turns
        ("script", {"ending": "budget spent", "exit_code": 6}, "no kernel", 6),
        ("draft", {"exit_code": 2, "unmatched": "aten.sort"}, "unmatched", 2),
        ("claude", {"ending": "model failed", "exit_code": 7}, "open", 0),
        ("claude", {"ending": "model failed", "exit_code": 0, "kernel": "kernel.py"}, "open", 0),
    ],
)
def test_no_kernel_is_the_makers_doing_unless_a_model_failed(tmp_path, script, kind, said, status, code):
    generation = verdict("agent", status="whatever") | said
    agent = script if kind == "script" else kind
    answer = saying("draft" if kind == "draft" else "session", generation=generation)
    tally = run(plan(tmp_path, 1, agent), tmp_path / "run", answer)
    if status == "open":
        assert list(tally.open) == ["level1/task 0#0"]
    else:
        assert (only(tmp_path / "run")["status"], only(tmp_path / "run")["exit_code"]) == (status, code)


def test_a_lost_judge_is_replaced_and_a_kernel_that_ends_every_judge_is_an_error_of_ours(tmp_path):
    lost = []

    def answer(job):
        if job.stage == "verify" and (job.kernel.data == b"kernel 0" or not lost):
            lost.append(job.id)
            return Report(id=job.id, stage=job.stage, lost="it was ended by SIGKILL", worker="gpu0")
        return judge(job)

    tally = run(plan(tmp_path, 2), tmp_path / "run", answer)
    lines = results(tmp_path / "run")
    assert lines["level1/task 0", 0]["status"] == "internal" and "SIGKILL" in lines["level1/task 0", 0]["summary"]
    assert lines["level2/task 1", 0]["correct"] and tally.complete and lost.count("level1/task 0#0") == 3


def test_a_gpu_that_is_gone_says_nothing_of_a_kernel(tmp_path):
    """Two of three slots find their GPU gone; the verdict that they would have given is not taken."""
    gone = []

    def answer(job):
        if job.stage == "verify" and len(gone) < 2:
            gone.append(job.id)
            wrong = {"verify": verdict("verify", 5, "crashed")}
            return Report(id=job.id, stage=job.stage, result=StageResult(verdicts=wrong), lost="no GPU", worker="gpu1")
        return judge(job)

    tally = run(plan(tmp_path, 3), tmp_path / "run", answer)
    assert tally.solved == 3 and len(gone) == 2


class Dying(InstantEngine):
    """An engine whose only GPU goes away with the second kernel."""

    dead = False

    def capacity(self, stage):
        return 0 if self.dead else super().capacity(stage)

    def completed(self, seconds):
        job = self._waiting[0] if self._waiting else None
        if job is not None and job.stage == "verify" and "task 1" in job.id:
            self.dead = True
        if not self.dead:
            return super().completed(seconds)
        jobs, self._waiting = list(self._waiting), type(self._waiting)()
        return [Report(id=job.id, stage=job.stage, lost="no GPU is left") for job in jobs]


def test_when_no_gpu_is_left_the_rest_stays_open_for_another_time(tmp_path):
    a_plan = plan(tmp_path, 5)
    tally = run(a_plan, tmp_path / "run", engine=Dying(judge, slots=1))
    done = results(tmp_path / "run")
    assert 1 <= tally.done < 5 and not tally.complete and tally.open and all(line["correct"] for line in done.values())
    again = run(a_plan, tmp_path / "run")
    assert again.complete and again.solved == 5
    assert {key: line for key, line in results(tmp_path / "run").items() if key in done} == done


NO_ROOM = "CUDA out of memory. Tried to allocate 6.00 GiB"
FULL = {"summary": NO_ROOM, "mechanism": "GPU memory"}


class Crowded(InstantEngine):
    """A GPU whose memory is full whenever two are on it: the first or the last that came (`fails`) finds no room."""

    def __init__(self, answer, fails):
        super().__init__(answer)
        self.fails, self.failed = fails, []

    def completed(self, seconds):
        on_gpu = [job for job in self._waiting if job.stage in ("verify", "benchmark")]
        if len(on_gpu) < 2:
            return super().completed(seconds)
        job = on_gpu[self.fails]
        self._waiting.remove(job)
        self.failed.append((job.id, job.stage))
        return [report(job, verdicts={job.stage: verdict("verify", 5, "crashed", **FULL)})]


@pytest.mark.parametrize("fails", [0, -1], ids=["the first", "the last"])
def test_memory_that_neighbours_hold_is_no_fault_of_the_kernel(tmp_path, fails):
    """Who lacked room once has the GPUs to itself until it is done: no other begins beside it."""
    engine = Crowded(judge, fails)
    assert run(plan(tmp_path, 6), tmp_path / "run", engine=engine).solved == 6
    assert engine.failed and len(set(engine.failed)) == len(engine.failed), "once each"


@pytest.mark.parametrize(
    ("code", "status", "taken", "why"),
    [
        (7, "unavailable", "", f"this GPU has too little memory to judge it: {NO_ROOM}"),
        (5, "crashed", "120.0 of its 139.8 GiB of memory are taken", "others use this GPU: 120.0 of its 139.8 GiB"),
    ],
)
def test_what_even_alone_finds_no_room_without_its_fault_stays_open(tmp_path, code, status, taken, why):
    said = {"verify": verdict("verify", code, status, **FULL)}
    answer = saying("verify", task="task 0", verdicts=said, gpu_taken=taken)
    tally = run(plan(tmp_path, 3), tmp_path / "run", answer)
    assert answer.asked.count(("level1/task 0#0", "verify")) == 2
    assert tally.solved == 2 and tally.open["level1/task 0#0"].startswith(why)
    assert run(plan(tmp_path, 3), tmp_path / "run").solved == 3


@pytest.mark.parametrize("times", [1, 99], ids=["beside others", "even alone"])
def test_a_baseline_without_room_is_timed_again_alone(tmp_path, times):
    """A neighbour must not take the baseline from a kernel; one that has no room even then says so."""
    fallen = timing("eager", error=f"the baseline raised OutOfMemoryError: {NO_ROOM}", mechanism="GPU memory")
    said = {"benchmark": verdict("benchmark", timings=[timing("candidate", 2.0), fallen])}
    answer = saying("benchmark", task="task 0", times=times, verdicts=said)
    run(plan(tmp_path, 3), tmp_path / "run", answer)
    line = results(tmp_path / "run")["level1/task 0", 0]
    assert answer.asked.count(("level1/task 0#0", "benchmark")) == 2 and line["correct"]
    eager = line["timings"]["eager"]
    assert eager["median_us"] == 4.0 if times == 1 else "out of memory" in eager["error"]


@pytest.mark.parametrize(("code", "status"), [(5, "crashed"), (2, "usage")])
def test_a_kernel_that_fills_the_memory_alone_has_its_verdict(tmp_path, code, status):
    """Be it in its own call or later in the reference's, beside inputs that are small."""
    answer = failing("verify", code, status, task="task 0", **FULL)
    run(plan(tmp_path, 3), tmp_path / "run", answer)
    assert results(tmp_path / "run")["level1/task 0", 0]["status"] == status
    assert [stage for unit, stage in answer.asked if unit == "level1/task 0#0"] == ["check", "verify", "verify"]


def test_a_gpu_that_others_hold_is_asked_again_and_then_the_attempt_stays_open(tmp_path):
    answer = failing("benchmark", 7, "unavailable", task="task 0")
    tally = run(plan(tmp_path, 2), tmp_path / "run", answer)
    assert list(tally.open) == ["level1/task 0#0"] and tally.solved == 1
    assert answer.asked.count(("level1/task 0#0", "benchmark")) == 3
    assert run(plan(tmp_path, 2), tmp_path / "run").solved == 2


def test_a_kernel_that_could_not_be_decided_is_judged_once_and_counts_as_unjudged(tmp_path):
    undecided = {"mechanism": Mechanism.NOTHING_DECIDED.value, "ran_on": "gpu"}
    answer = failing("verify", 7, "not decided", **undecided)
    tally = run(plan(tmp_path, 1), tmp_path / "run", answer)
    line = only(tmp_path / "run")
    assert (tally.complete, tally.solved, line["status"], line["correct"]) == (True, 0, "not decided", False)
    assert [stage for _, stage in answer.asked].count("verify") == 1
    assert [outcome.outcome for outcome in read_run(tmp_path / "run").outcomes] == [UNJUDGED]


def test_earlier_outcomes_are_taken_from_the_cache_and_marked(tmp_path):
    a_plan, cache, unasked = plan(tmp_path, 2), tmp_path / "cache", saying("")
    run(a_plan, tmp_path / "one", cache=cache)
    tally = run(a_plan, tmp_path / "two", unasked, cache=cache)
    assert (tally.cached, tally.solved, unasked.asked) == (2, 2, [])
    one, two = results(tmp_path / "one"), results(tmp_path / "two")
    assert {key: line | {"cached": True} for key, line in one.items()} == two
    assert (tmp_path / "two" / two["level1/task 0", 0]["verdicts"]).is_file()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"attempt": {"key": 1}, "verdicts": {}}'])
def test_a_damaged_entry_of_the_cache_is_none(tmp_path, damage):
    a_plan, cache = plan(tmp_path, 1), tmp_path / "cache"
    run(a_plan, tmp_path / "one", cache=cache)
    (entry,) = cache.rglob("*.json")
    entry.write_bytes(damage)
    assert run(a_plan, tmp_path / "two", cache=cache).cached == 0


def test_a_time_out_is_not_remembered(tmp_path):
    run(plan(tmp_path, 1), tmp_path / "one", failing("verify", 6, "timed_out"), cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_other_settings_have_other_keys(tmp_path):
    keys = set()
    for number, judging in enumerate((JudgeSettings(), JudgeSettings(seeds=3), JudgeSettings(rtol=0.1))):
        run(plan(tmp_path, 1, judge=judging), tmp_path / f"run{number}")
        keys.add(only(tmp_path / f"run{number}")["key"])
    run(plan(tmp_path, 1, judge=JudgeSettings(), tolerance="kernelbench"), tmp_path / "tolerant")
    assert len(keys | {only(tmp_path / "tolerant")["key"]}) == 4


def test_no_more_is_in_flight_than_the_engine_takes_and_nothing_is_begun_after_the_time_limit(tmp_path):
    engine = InstantEngine(judge, slots=2)
    assert run(plan(tmp_path, 30), tmp_path / "whole", engine=engine).complete and engine.most == 2
    tally = run(plan(tmp_path, 3, seconds=-1.0), tmp_path / "run")
    assert tally.done == 0 and tally.out_of_time and not tally.complete

"""The controller of a run over an engine that answers at once: what becomes of verdicts, losses, copies and tasks."""

from __future__ import annotations

import json

import pytest

from cutesmith.evals.engines.instant_engine import InstantEngine
from cutesmith.evals.engines.jobs import Report, StageResult
from cutesmith.evals.settings import JudgeSettings
from tests.evals.running.judged_runs import failing, judge, kernel_text, kernels, plan, report, results, run, verdict


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
    own = {"name": "candidate", "samples_us": [2.0], "median_us": 2.0, "host_us": 1.0, "error": ""}
    slow = {"name": "a.py:f", "samples_us": [5.0], "median_us": 5.0, "host_us": None, "error": ""}
    fast = {**slow, "name": "b.py:f", "samples_us": [4.0], "median_us": 4.0}
    wrong = {"name": "c.py:f", "samples_us": [], "median_us": 0.0, "host_us": None, "error": "no baseline: output 0"}
    for number, (timings, best) in enumerate((([own, wrong, slow, fast], "b.py:f"), ([own, wrong], "c.py:f"))):
        said = {"benchmark": verdict("benchmark", timings=timings, floor_us=1.0, floor_kind="bytes")}
        answer = lambda job, said=said: report(job, verdicts=said) if job.stage == "benchmark" else judge(job)
        run(plan(tmp_path, 1), tmp_path / f"run{number}", answer)
        line = only(tmp_path / f"run{number}")
        assert line["timings"]["library"] == line["timings"][best]
    assert line["timings"]["library"] == {"error": "no baseline: output 0"}


@pytest.mark.parametrize(
    ("stage", "code", "status", "correct", "last"),
    [
        ("verify", 1, "wrong_result", False, "verify"),
        ("verify", 8, "rejected", False, "verify"),
        ("verify", 5, "crashed", False, "verify"),
        ("benchmark", 8, "rejected", False, "benchmark"),
        ("benchmark", 1, "wrong_result", False, "benchmark"),
        ("benchmark", 6, "timed_out", True, "benchmark"),  # verified; it could not be timed
    ],
)
def test_what_a_stage_holds_against_a_kernel(tmp_path, stage, code, status, correct, last):
    run(plan(tmp_path, 1), tmp_path / "run", failing(stage, code, status, rule="R1" if code == 8 else ""))
    line = only(tmp_path / "run")
    assert (line["stage"], line["status"], line["exit_code"], line["correct"]) == (last, status, code, correct)
    assert line.get("rule", "") == ("R1" if code == 8 else "")


def test_lint_is_advice_and_a_compiler_that_crashed_does_not_decide(tmp_path):
    def answer(job):
        if job.stage != "check":
            return judge(job)
        said = {"lint": verdict("lint", 3, "lint"), "compile": verdict("compile", 5, "crashed", archs=[])}
        return report(job, verdicts=said)

    run(plan(tmp_path, 1), tmp_path / "run", answer)
    assert only(tmp_path / "run")["correct"]


def test_what_does_not_compile_never_meets_a_gpu(tmp_path):
    def answer(job):
        assert job.stage == "check"
        said = {"lint": verdict("lint"), "compile": verdict("compile", 4, "does_not_compile", archs=[])}
        return report(job, verdicts=said)

    run(plan(tmp_path, 1), tmp_path / "run", answer)
    assert only(tmp_path / "run")["status"] == "does_not_compile"


def test_without_a_gpu_nothing_is_timed(tmp_path):
    answer = failing("verify", 0, "verified on the emulated GPU", ran_on="emulator")
    run(plan(tmp_path, 1, judge=JudgeSettings(on="auto")), tmp_path / "run", answer)
    line = only(tmp_path / "run")
    assert line["correct"] and line["stage"] == "verify" and "timings" not in line


def test_compiled_is_not_correct(tmp_path):
    answer = failing("verify", 0, "compiled", ran_on="compile")
    run(plan(tmp_path, 1, judge=JudgeSettings(on="compile")), tmp_path / "run", answer)
    line = only(tmp_path / "run")
    assert not line["correct"] and line["exit_code"] == 0 and line["status"] == "compiled"


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


def test_the_same_kernel_is_judged_once(tmp_path):
    agent, asked = kernels(tmp_path, 4, text="the same"), []
    a_plan = plan(tmp_path, 1, agent, samples=4)
    for sample in range(4):
        (tmp_path / "made" / "task 0").mkdir(exist_ok=True)
        (tmp_path / "made" / "task 0" / f"{sample}.py").write_text("the same" if sample else "another")

    def answer(job):
        asked.append((job.id, job.stage))
        return judge(job)

    tally = run(a_plan, tmp_path / "run", answer)
    lines = results(tmp_path / "run")
    assert len(asked) == 6 and tally.cached == 2 and tally.complete
    assert len({line["key"] for line in lines.values()}) == 2
    assert {line["kernel"] for line in lines.values()} == {f"kernels/level1/task 0/{n}/kernel.py" for n in range(4)}


def test_the_offline_generator_is_asked_once_for_all_samples_of_a_task(tmp_path):
    asked = []

    def answer(job):
        asked.append(job.stage)
        return judge(job)

    tally = run(plan(tmp_path, 2, "draft", samples=3), tmp_path / "run", answer)
    assert asked.count("draft") == 2 and asked.count("verify") == 2 and (tally.done, tally.cached) == (6, 4)


def test_a_session_is_asked_for_every_sample(tmp_path):
    script = tmp_path / "script.json"
    script.write_text("[]")
    folders = []

    def answer(job):
        if job.stage == "session":
            folders.append(job.folder)
            assert job.agent == f"script:{script}"
        return judge(job)

    run(plan(tmp_path, 1, f"script:{script}", samples=2), tmp_path / "run", answer)
    assert folders == [str(tmp_path / "run" / "kernels" / "level1" / "task 0" / str(n)) for n in range(2)]


def test_a_model_that_does_not_answer_leaves_the_attempt_open(tmp_path):
    script = tmp_path / "script.json"
    script.write_text("[]")
    a_plan = plan(tmp_path, 2, f"script:{script}")

    def silent(job):
        if job.stage != "session" or "task 0" not in job.id:
            return judge(job)
        return report(job, generation=verdict("agent", 7, "unavailable"))

    tally = run(a_plan, tmp_path / "run", silent)
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
def test_no_kernel_is_the_makers_doing_unless_a_model_failed(tmp_path, kind, said, status, code):
    (tmp_path / "script.json").write_text("[]")

    def answer(job):
        return report(job, generation=verdict("agent", status="whatever") | said)

    agent = f"script:{tmp_path / 'script.json'}" if kind == "script" else kind
    tally = run(plan(tmp_path, 1, agent), tmp_path / "run", answer)
    if status == "open":
        assert list(tally.open) == ["level1/task 0#0"]
    else:
        assert (only(tmp_path / "run")["status"], only(tmp_path / "run")["exit_code"]) == (status, code)


def test_a_lost_judge_is_replaced_and_a_kernel_that_ends_every_judge_is_an_error_of_ours(tmp_path):
    lost = []

    def answer(job):
        if job.stage == "verify" and (kernel_text(job) == "kernel 0" or not lost):
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
        return [report(job, verdicts={job.stage: {**verdict("verify", 5, "crashed"), "summary": NO_ROOM}})]


@pytest.mark.parametrize("fails", [0, -1], ids=["the first", "the last"])
def test_memory_that_neighbours_hold_is_no_fault_of_the_kernel(tmp_path, fails):
    """Who lacked room once has the GPUs to itself until it is done: nobody begins beside it."""
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
    asked = []

    def answer(job):
        if job.stage != "verify" or "task 0" not in job.id:
            return judge(job)
        asked.append(job.id)
        return report(
            job, verdicts={"verify": {**verdict("verify", code, status), "summary": NO_ROOM}}, gpu_taken=taken
        )

    tally = run(plan(tmp_path, 3), tmp_path / "run", answer)
    assert len(asked) == 2 and tally.solved == 2 and tally.open["level1/task 0#0"].startswith(why)
    assert run(plan(tmp_path, 3), tmp_path / "run").solved == 3


@pytest.mark.parametrize("even_alone", [True, False])
def test_a_baseline_without_room_is_timed_again_alone(tmp_path, even_alone):
    """A neighbour must not take the baseline from a kernel; one that has no room even then says so."""
    own = {"name": "candidate", "samples_us": [2.0], "median_us": 2.0, "host_us": 1.0, "error": ""}
    eager = {**own, "name": "eager", "median_us": 4.0}
    fallen = {**eager, "samples_us": [], "median_us": 0.0, "error": f"the baseline raised OutOfMemoryError: {NO_ROOM}"}
    asked = []

    def answer(job):
        if job.stage != "benchmark" or "task 0" not in job.id:
            return judge(job)
        asked.append(job.id)
        timings = [own, fallen if len(asked) == 1 or even_alone else eager]
        return report(
            job, verdicts={"benchmark": verdict("benchmark", timings=timings, floor_us=1.0, floor_kind="bytes")}
        )

    run(plan(tmp_path, 3), tmp_path / "run", answer)
    line = results(tmp_path / "run")["level1/task 0", 0]
    assert len(asked) == 2 and line["correct"]
    assert ("out of memory" in line["timings"]["eager"].get("error", "")) == even_alone
    assert even_alone or line["timings"]["eager"]["median_us"] == 4.0


@pytest.mark.parametrize(("code", "status"), [(5, "crashed"), (2, "usage")])
def test_a_kernel_that_fills_the_memory_alone_has_its_verdict(tmp_path, code, status):
    """Be it in its own call or later in the reference's, beside inputs that are small."""
    asked = []

    def answer(job):
        asked.append(job.id)
        if job.stage != "verify" or "task 0" not in job.id:
            return judge(job)
        return report(job, verdicts={"verify": {**verdict("verify", code, status), "summary": NO_ROOM}})

    run(plan(tmp_path, 3), tmp_path / "run", answer)
    line = results(tmp_path / "run")["level1/task 0", 0]
    assert line["status"] == status and asked.count("level1/task 0#0") == 3  # check, and verify twice


def test_a_gpu_that_others_hold_is_asked_again_and_then_the_attempt_stays_open(tmp_path):
    asked = []

    def answer(job):
        if job.stage == "benchmark" and (job.id == "level1/task 0#0" or not asked):
            asked.append(job.id)
            return report(job, verdicts={"benchmark": verdict("benchmark", 7, "unavailable")})
        return judge(job)

    tally = run(plan(tmp_path, 2), tmp_path / "run", answer)
    assert list(tally.open) == ["level1/task 0#0"] and asked.count("level1/task 0#0") == 3 and tally.solved == 1
    assert run(plan(tmp_path, 2), tmp_path / "run").solved == 2


def test_earlier_outcomes_are_taken_from_the_cache_and_marked(tmp_path):
    a_plan, cache = plan(tmp_path, 2), tmp_path / "cache"
    run(a_plan, tmp_path / "one", cache=cache)

    def nobody(job):
        raise AssertionError("nothing is to be judged")

    tally = run(a_plan, tmp_path / "two", nobody, cache=cache)
    assert (tally.cached, tally.solved) == (2, 2)
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


def test_no_more_is_in_flight_than_the_engine_takes(tmp_path):
    engine = InstantEngine(judge, slots=2)
    assert run(plan(tmp_path, 30), tmp_path / "run", engine=engine).complete
    assert engine.most == 2


def test_nothing_is_begun_after_the_time_limit(tmp_path):
    tally = run(plan(tmp_path, 3, seconds=-1.0), tmp_path / "run")
    assert tally.done == 0 and tally.out_of_time and not tally.complete

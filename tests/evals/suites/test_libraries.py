"""Library functions by task: read off their files, refused where they say nothing, given to the benchmark alone."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import pytest

from cutesmith import resources
from cutesmith.errors import CutesmithError, UsageError
from cutesmith.evals.engines.jobs import LibraryFile, StageResult
from cutesmith.evals.engines.stages import LIBRARIES, without_our_folders, written_libraries
from cutesmith.evals.records import Library
from cutesmith.evals.settings import JudgeSettings
from cutesmith.evals.suites import load_suite
from cutesmith.evals.suites.libraries import libraries_of, read_library
from tests.evals.running.judged_runs import judge, plan, results, run, suite

FILE = """raise SystemExit("nothing of it is run here")
NEEDS = "no_such_library"
TASKS = {"level1/task 0": "scaled", "level2/task 1": "scaled"}
def scaled(x):
    return 2 * x
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "mine.py").write_text(FILE)
    return tmp_path / "libraries"


def test_tasks_of_our_suites_bring_their_libraries():
    known = libraries_of(resources.libraries())
    ids = {task.id for task in load_suite("core").tasks} | {task.id for task in load_suite("speed").tasks}
    assert known and set(known) <= ids, "a library that computes what no suite asks for"
    given = {task.id: task.libraries for task in load_suite("core").tasks if task.libraries}
    assert given == {task: functions for task, functions in known.items() if not task.startswith("speed/")}


def test_a_folder_of_ones_own_has_those_that_it_is_given(folder, tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "level1").mkdir()
    text = "import torch\ndef reference_fn(x):\n    return x\ndef get_inputs():\n    return [torch.ones(2)]\n"
    (tmp_path / "task" / "level1" / "task 0.py").write_text(text)
    (task,) = load_suite(tmp_path / "task", libraries=folder).tasks
    assert task.libraries == (Library(path=folder / "mine.py", function="scaled", data=FILE.encode()),)
    assert load_suite(tmp_path / "task").tasks[0].libraries == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "it names no TASKS"),
        ("TASKS = dict(a='b')", "it names no TASKS"),
        ("TASKS = {'a': 1}", "it names no TASKS"),
        ("TASKS = {'a': 'gone'}", "functions that it does not define: gone"),
        ("TASKS = {", "bad.py:1: syntax error"),
    ],
)
def test_a_file_that_says_nothing_is_refused(tmp_path, text, says):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(CutesmithError, match=says):
        read_library(tmp_path / "bad.py")
    with pytest.raises(UsageError, match="no folder of library files"):
        libraries_of(tmp_path / "none")


def with_library(a_plan, folder):
    known = libraries_of(folder)
    tasks = tuple(replace(task, libraries=known.get(task.id, ())) for task in a_plan.suite.tasks)
    return replace(a_plan, suite=replace(a_plan.suite, tasks=tasks))


def test_only_the_benchmark_gets_them_and_they_are_part_of_the_key(folder, tmp_path):
    asked = {}

    def answer(job):
        asked.setdefault(job.stage, []).append(getattr(job, "libraries", None))
        return judge(job)

    keys = []
    for number, text in enumerate((FILE, FILE, FILE + "# another\n")):
        (folder / "mine.py").write_text(text)
        run(with_library(plan(tmp_path, 1), folder), tmp_path / f"run{number}", answer)
        keys += [line["key"] for line in results(tmp_path / f"run{number}").values()]
    assert asked["check"] == asked["verify"] == [None] * 3
    assert asked["benchmark"][2][0].data.decode().endswith("# another\n")
    assert asked["benchmark"][0][0].function == "scaled"
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("settings", [JudgeSettings(on="gpu").quick(), JudgeSettings(on="emulator")])
def test_no_source_gets_them_where_eager_alone_is_wanted_or_nothing_is_timed(folder, tmp_path, settings):
    a_plan = with_library(plan(tmp_path, 1, judge=settings), folder)
    assert [a_plan.libraries(task) for task in a_plan.suite.tasks] == [()]
    assert suite(tmp_path, 1).tasks[0].libraries == ()


def test_the_benchmark_finds_them_in_a_folder_that_no_name_tells(folder, tmp_path):
    file = LibraryFile(name="../mine.py", data=FILE.encode(), function="scaled")
    (named,) = written_libraries([file], tmp_path / "there")
    assert named == f"{tmp_path / 'there' / 'mine.py'}:scaled"
    assert (tmp_path / "there" / "mine.py").read_text() == FILE
    timing = {"name": f"{tempfile.gettempdir()}/cutesmith-eval-ab12/files/{LIBRARIES}/mine.py:scaled"}
    verdict = {"status": "passed", "exit_code": 0, "timings": [timing]}
    told = without_our_folders(StageResult(verdicts={"benchmark": verdict}))
    assert told.verdicts["benchmark"].timings[0].name == "mine.py:scaled"

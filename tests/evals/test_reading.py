"""A run's folder as a crash, an editor or another version left it."""

from __future__ import annotations

import json

import pytest

from cutesmith.errors import UsageError
from cutesmith.evals.reading import read_attempts, read_facts
from cutesmith.evals.scores.outcomes import read_runs
from tests.evals.sample_attempts import attempt, write_run


def test_every_cut_of_the_last_line_leaves_the_lines_before_it(tmp_path):
    folder = write_run(tmp_path, [attempt("a", 2.0), attempt("b", 3.0)])
    whole = (folder / "results.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) - 1, 7):
        (folder / "results.jsonl").write_bytes(whole[:end])
        damaged = []
        assert [found.task for found in read_attempts(folder, damaged)] == ["a"]
        assert [line.number for line in damaged] == ([2] if end > first else [])


def test_lines_that_are_no_attempts_are_named_and_unknown_fields_are_not(tmp_path):
    good = json.loads(attempt("a", 2.0).model_dump_json())
    lines = [{**good, "newer": 1}, {**good, "sample": -1}, {**good, "floor_us": float("nan")}, [1], {}]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "results.jsonl").write_bytes(text.encode() + b"\n\xff\xfe binary\n")
    damaged = []
    assert len(list(read_attempts(tmp_path, damaged))) == 1
    assert [line.number for line in damaged] == [2, 3, 4, 5, 7]
    assert damaged[0].reason.startswith("sample: ")


def test_run_json_may_name_tasks_by_id_alone_or_be_missing(tmp_path):
    assert read_facts(tmp_path).tasks == ()
    about = {"suite": {"name": "core"}, "command": ["cutesmith", "eval"], "tasks": ["a", {"id": "b", "level": 2}]}
    about["tasks"] += [{"id": "c", "libraries": ["quack.py:softmax"]}, {"id": "d", "libraries": []}]
    (tmp_path / "run.json").write_text(json.dumps(about), encoding="utf-8")
    facts = read_facts(tmp_path)
    assert (facts.suite, facts.command) == ("core", "cutesmith eval")
    assert [(task.id, task.level) for task in facts.tasks] == [("a", 0), ("b", 2), ("c", 0), ("d", 0)]
    assert [task.libraries for task in facts.tasks] == [None, None, ("quack.py:softmax",), ()]


def test_a_folder_without_results_says_so(tmp_path):
    with pytest.raises(UsageError, match=r"holds no results\.jsonl"):
        list(read_attempts(tmp_path))


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    folders = [write_run(tmp_path / parent / "run", [attempt("a")]) for parent in "xy"]
    assert [run.name for run in read_runs(folders)] == list(map(str, folders))
    assert [run.name for run in read_runs(folders[:1])] == ["run"]

"""Every task is worth solving: audited by code, described by itself, and unlike the others."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutesmith import resources
from cutesmith.audit.problem_audit import ProblemAuditor
from cutesmith.evals.records import Task
from cutesmith.evals.suites import load_suite
from cutesmith.evals.suites.task_audit import audit_task

TASKS = [*load_suite("core").tasks, *load_suite("speed").tasks]


@pytest.fixture(scope="module")
def auditor() -> Iterator[ProblemAuditor]:
    with ProblemAuditor(timeout=120.0) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_task_is_sound(task: Task, auditor: ProblemAuditor) -> None:
    assert audit_task(task, auditor).faults == ()


def test_there_are_enough_tasks_of_every_level() -> None:
    levels = Counter(task.level for task in load_suite("core").tasks)
    assert set(levels) == {1, 2, 3, 4} and sum(levels.values()) >= 100
    assert levels[1] >= 24 and levels[2] >= 24 and levels[3] >= 20 and levels[4] >= 20
    assert len(load_suite("speed").tasks) == 20


def test_a_task_stands_in_the_folder_of_its_level() -> None:
    assert [task.id for task in load_suite("core").tasks if f"level{task.level}" != task.id.partition("/")[0]] == []


def test_no_file_of_the_tasks_is_in_no_suite() -> None:
    files = {path.relative_to(resources.tasks()).with_suffix("").as_posix() for path in resources.tasks().rglob("*.py")}
    assert files == {task.id for task in TASKS}


def test_no_two_blocks_are_the_same_but_for_their_sizes() -> None:
    functions = {task.id: reference_of(task.path) for task in load_suite("core", levels=(3, 4)).tasks}
    again = [name for name, text in functions.items() if Counter(functions.values())[text] > 1]
    assert again == []


def reference_of(path: Path) -> str:
    """The reference and what it calls: no docstrings, no numbers, variables by the order in which they appear."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    kept = [node for node in parts if node.name not in ("get_inputs", "get_input_sets") and node.name.islower()]
    names: dict[str, str] = {}
    for node in (node for part in kept for node in ast.walk(part)):
        if isinstance(node, ast.Constant):
            node.value = None
        for field in ("id", "arg", "name"):
            if isinstance(getattr(node, field, None), str):
                setattr(node, field, names.setdefault(getattr(node, field), f"name{len(names)}"))
    return "\n".join(ast.dump(part) for part in kept)

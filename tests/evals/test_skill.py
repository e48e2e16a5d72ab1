"""With an installed copy of the skill alone an agent gets on; queries and prompts have the forms of skill-creator.

The first walk; `python evals/skill/skill_walk.py` takes all of them in minutes: evals/results/emulator/skill_walk.json.
https://github.com/anthropics/skills, `skills/skill-creator`: `references/schemas.md` and `scripts/run_eval.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from cutesmith import resources
from evals.skill.skill_walk import prepare, take
from evals.skill.walks import WALKS, Command

ROOT = Path(__file__).resolve().parents[2]
IN_SUITE = ("start",)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("walk"))


@pytest.mark.slow
@pytest.mark.parametrize("walk", [walk for walk in WALKS if walk.name in IN_SUITE], ids=lambda walk: walk.name)
def test_a_walk_comes_to_its_end(walk, place, tmp_path):
    result = take(walk, *place, tmp_path / walk.name)
    assert result.passed, [step for step in result.steps if not step.right]
    assert len(result.steps) == sum(isinstance(step, Command) for step in walk.steps)


@pytest.mark.slow
def test_a_step_that_is_not_as_expected_ends_a_walk(place, tmp_path):
    wrong = WALKS[0].__class__("wrong", "", (Command(("scripts/doctor.py",), (3,)), Command(("scripts/doctor.py",))))
    result = take(wrong, *place, tmp_path / "wrong")
    assert not result.passed and len(result.steps) == 1 and result.steps[0].exit_code == 0


def test_every_workflow_of_the_manifest_has_a_walk_that_passed():
    text = (ROOT / "skill" / "cute-dsl-kernels" / "SKILL.md").read_text(encoding="utf-8")
    recorded = json.loads((ROOT / "evals" / "results" / "emulator" / "skill_walk.json").read_text(encoding="utf-8"))
    assert text.count("\n## Workflow ") == len(WALKS) == 7
    assert {walk["walk"] for walk in recorded["walks"]} == {walk.name for walk in WALKS}
    assert all(
        step["exit_code"] in step["expected"] and not step["missing"] for w in recorded["walks"] for step in w["steps"]
    )


def read(name):
    return json.loads((ROOT / "evals" / "skill" / name).read_text(encoding="utf-8"))


def is_text(value):
    return isinstance(value, str) and 0 < len(value.strip()) <= 4000


def test_trigger_queries_have_the_form_and_are_enough_of_both_kinds():
    queries = read("triggers.json")
    assert all(query.keys() == {"query", "should_trigger"} and is_text(query["query"]) for query in queries)
    assert len({query["query"] for query in queries}) == len(queries)
    counts = Counter(query["should_trigger"] for query in queries)
    assert counts.keys() == {True, False} and min(counts.values()) >= 20
    near = " ".join(query["query"] for query in queries if not query["should_trigger"]).lower()
    assert all(word in near for word in ("triton", "cuda c++", "cutlass c++", "profiler", "cutile", "explain"))


def test_prompts_have_the_form_and_name_files_and_scripts_that_exist():
    whole = read("evals.json")
    assert whole.keys() == {"skill_name", "evals"} and whole["skill_name"] == resources.SKILL_NAME
    fields = {"id": int, "prompt": str, "expected_output": str, "files": list, "expectations": list}
    assert all({name: type(value) for name, value in item.items()} == fields for item in whole["evals"])
    assert [item["id"] for item in whole["evals"]] == list(range(1, len(whole["evals"]) + 1))
    for item in whole["evals"]:
        assert is_text(item["prompt"]) and is_text(item["expected_output"])
        assert len(item["expectations"]) >= 2 and all(map(is_text, item["expectations"]))
        assert all((ROOT / name).is_file() for name in item["files"])
        scripts = re.findall(r"\w+\.py", " ".join(item["expectations"]))
        assert all((ROOT / "scripts" / name).is_file() for name in scripts if name != "kernel.py")

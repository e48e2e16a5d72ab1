"""With an installed copy alone, in an environment with only what the manifest asks for, an agent gets on.

The first walk; `python evals/skill/skill_walk.py` takes all of them in minutes: evals/results/emulator/skill_walk.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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

"""A race is run once for the same candidates on the same device; what failed in it is tried again."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cutesmith.devices import Device
from cutesmith.patterns.generation.candidates import Candidate
from cutesmith.patterns.generation.drafting import draft_kernels
from cutesmith.patterns.generation.remembered_race import RememberedRace
from cutesmith.patterns.generation.stages import Stages
from cutesmith.patterns.generation.target import Target, choose_target
from cutesmith.runtime.tuning_cache import TuningCache
from cutesmith.verdicts import Timing

H200 = Target("sm_90a", Device(0, "NVIDIA H200", (9, 0), "580.1"))
SOURCES = ("# one\n", "# two\n")


def timing(median: float, error: str = "") -> Timing:
    return Timing(name="k", samples_us=(median, median), median_us=median, q1_us=median, q3_us=median, error=error)


@dataclass
class Course:
    """Counts how often it was raced on."""

    outcome: list[Timing]
    races: list[int] = field(default_factory=list)

    def __call__(self) -> list[Timing]:
        self.races.append(1)
        return self.outcome


@pytest.fixture
def race(tmp_path: Path) -> RememberedRace:
    problem = tmp_path / "problem.py"
    problem.write_text("def reference_fn(x): return x\n")
    return RememberedRace(problem, H200, SOURCES, TuningCache(tmp_path / "tuning"))


def test_the_second_time_it_is_remembered_with_its_day(race):
    course = Course([timing(3.0), timing(2.0)])
    assert race.timings(course) == course.outcome and race.date == ""
    again = replace(race)
    assert again.timings(course) == course.outcome and len(course.races) == 1
    assert again.date == time.strftime("%Y-%m-%d", time.gmtime())


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": ("# two\n", "# one\n")},
        {"target": Target("sm_90a", Device(0, "NVIDIA H200", (9, 0), "580.2"))},
        {"target": Target("sm_90", H200.device)},
        {"cache": None},
    ],
)
def test_another_question_is_raced(race, changes):
    course = Course([timing(3.0), timing(2.0)])
    race.timings(course)
    other = replace(race, **changes)
    other.timings(course)
    assert len(course.races) == 2 and other.date == ""


def test_another_problem_is_raced(race):
    course = Course([timing(3.0), timing(2.0)])
    race.timings(course)
    race.problem.write_text("def reference_fn(x): return x + 1\n")
    replace(race).timings(course)
    assert len(course.races) == 2


def test_a_race_with_a_failure_is_not_remembered(race):
    course = Course([timing(3.0), timing(0.0, error="out of memory")])
    for _ in range(2):
        assert replace(race).timings(course)[1].error == "out of memory"
    assert len(course.races) == 2


@pytest.mark.parametrize("result", [{}, {"timings": [{"name": "k"}]}, {"timings": 7}, {"timings": []}])
def test_what_another_version_wrote_is_raced_again(race, result):
    race.cache.put(race.key(), result)
    course = Course([timing(3.0), timing(2.0)])
    assert race.timings(course) == course.outcome and len(course.races) == 1
    (entry,) = race.cache.folder.glob("*.json")
    assert json.loads(entry.read_text())["result"]["timings"][1]["median_us"] == 2.0


PROBLEM = """import torch
def reference_fn(x): return torch.softmax(x, -1)
def get_inputs(): return [torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16)]
"""


@pytest.mark.gpu
def test_the_generators_race_on_the_gpu_is_run_once(tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM)
    target = choose_target(None, "gpu")
    draft = draft_kernels(problem, target.arch, limit=2)
    stages = Stages(problem, target, draft, TuningCache(tmp_path / "tuning"))

    def raced() -> tuple[str, list[float | None]]:
        candidates = []
        for number, drafted in enumerate(draft.kernels, start=1):
            path = tmp_path / f"kernel_{number}.py"
            path.write_text(drafted.source)
            cover = draft.covers[drafted.cover]
            candidates.append(Candidate(number, drafted.configuration, drafted.tiling, path, drafted.source, cover))
        return stages.time(candidates), [candidate.median_us for candidate in candidates]

    (now, medians), (day, remembered) = raced(), raced()
    assert now == "" and day == time.strftime("%Y-%m-%d", time.gmtime())
    assert remembered == medians and all(medians)

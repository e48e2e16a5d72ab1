"""What the measurement of a cluster's scaling lays out and makes of its runs; the clusters are `test_ray_engine`'s."""

import json
import os

import pytest

from cutesmith.evals.reading import read_attempts
from evals.studies.bench_host import beside_one_another, loops_a_second, side_by_side, slowed
from evals.studies.bench_ray_scaling import ROOT, lay_out, linear, on_cores, throughput
from tests.evals.sample_attempts import attempt

TASKS = ("level1/relu", "level1/add_bias", "level2/rms_norm", "level2/layer_norm")


@pytest.fixture
def run(tmp_path):
    """A folder of a run in which every task has a verified kernel."""
    lines = []
    for task in TASKS:
        kernel = tmp_path / "kernels" / task / "0" / "kernel.py"
        kernel.parent.mkdir(parents=True)
        kernel.write_text(f"# {task}")
        lines.append(attempt(task, kernel=str(kernel.relative_to(tmp_path))).model_dump_json())
    (tmp_path / "results.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.json").write_text(json.dumps({"tasks": [{"id": task} for task in TASKS]}))
    assert all(found.correct for found in read_attempts(tmp_path))
    return tmp_path


def test_every_count_has_the_same_mixture(run, tmp_path):
    names = {}
    for gpus in (1, 3):
        tasks, kernels = lay_out(run, 2, gpus, tmp_path / f"laid_{gpus}")
        names[gpus] = sorted(path.stem for path in kernels.iterdir())
        assert sorted(path.stem for path in tasks.iterdir()) == names[gpus]
    assert names[1] == ["level1_relu_1", "level2_rms_norm_1"]  # spread over the run's tasks
    assert names[3] == [f"{task}_{number}" for task in ("level1_relu", "level2_rms_norm") for number in (1, 2, 3)]


def test_equal_kernels_differ_by_a_comment_and_more_than_there_are_come_again(run, tmp_path):
    tasks, kernels = lay_out(run, 6, 1, tmp_path / "laid")
    texts = [path.read_text() for path in sorted(kernels.glob("level1_relu_*"))]
    assert texts == ["# level1/relu\n# copy 1\n", "# level1/relu\n# copy 2\n"]
    assert (tasks / "level1_relu_2.py").read_text() == (ROOT / "evals" / "tasks" / "level1" / "relu.py").read_text()


def test_linear_is_a_gpu_s_share_of_the_smallest_count():
    counts = {"2": {"middle_a_minute": 20.0, "loops_a_second": 30.0}, "8": {"middle_a_minute": 60.0}}
    assert linear(counts) == {"2": 1.0, "8": 0.75}
    assert linear(counts, "loops_a_second") == {"2": 1.0}
    assert linear({"1": {"middle_a_minute": 5.0}}, "loops_a_second") == {}


def test_the_middle_leaves_out_the_tenths_at_either_end(tmp_path):
    holds = [{"job": f"t{number}", "begin": 100.0, "end": 100.0 + 10 * number} for number in range(1, 21)]
    (tmp_path / "gpu_holds.jsonl").write_text("\n".join(map(json.dumps, holds)))
    found = throughput(tmp_path)
    assert found["finished_s"] == [10.0 * number for number in range(1, 21)]
    assert (found["a_minute"], found["middle_a_minute"]) == (6.0, 6.0)
    (tmp_path / "gpu_holds.jsonl").write_text("\n".join(map(json.dumps, holds[:4])))
    with pytest.raises(SystemExit, match="4 kernels were judged"):
        throughput(tmp_path)


def test_a_count_s_cores_are_those_of_what_it_starts():
    before = os.sched_getaffinity(0)
    with on_cores(1):
        assert len(os.sched_getaffinity(0)) == 1
        assert loops_a_second(sorted(os.sched_getaffinity(0)), 0.2) > 0
    assert os.sched_getaffinity(0) == before
    with on_cores(None):
        assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("offset", "order"),
    [
        (0, [0, 1, 2, 3, 4, 5, 6, 7]),
        (1, [0, 1, 2, 3, 4, 5, 6, 7]),
        (4, [0, 4, 1, 5, 2, 6, 3, 7]),
        (2, [0, 2, 1, 3, 4, 6, 5, 7]),
    ],
)
def test_cores_that_share_hardware_are_taken_together(offset, order):
    assert side_by_side(range(8), offset) == order


@pytest.mark.parametrize(
    ("rates", "place"),
    [
        ([9.0, 10.0, 10.0, 6.0, 10.5], 4),
        ([5.0, 10.0, 10.0], 1),
        ([9.0, 10.0, 10.0, 11.0], 0),
        ([5.0, 10.0], 0),
        ([], 0),
    ],
)
def test_a_sibling_slows_a_core_down_by_far(rates, place):
    assert slowed(rates) == place


def test_a_process_that_fails_says_so_and_does_not_return_into_its_parent_s_code(capfd):
    def fails(index):
        raise ValueError(f"number {index}")

    with pytest.raises(SystemExit, match="ended before it had measured"):
        beside_one_another(1, fails, 60)  # it ends with the first call
    assert "ValueError: number 0" in capfd.readouterr().err

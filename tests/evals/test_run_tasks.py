"""The task runner's choice of tasks, its rows and its summary; nothing is generated here."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "evals" / "run_tasks.py"


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tasks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERDICT = {
    "status": "verified",
    "pattern": "rows",
    "summary": "fine",
    "configuration": {"threads": 128},
    "tried": [{"chosen": False, "median_us": 9.0}, {"chosen": True, "median_us": 5.0}],
    "stages": [
        {"stage": "verify", "cases": [{}, {}, {}]},
        {
            "stage": "benchmark",
            "timings": [{"median_us": 4.5}],
            "floor_percent": 96.2,
            "speedups": {"eager": 2.0, "torch.compile": None},
        },
    ],
}


def test_globs_choose_tasks(runner: ModuleType) -> None:
    assert runner.choose_tasks(["level1/relu", "level2/rms_norm.py"]) == ["level1/relu", "level2/rms_norm"]
    norms = runner.choose_tasks(["level2/*norm*"])
    assert len(norms) > 8 and all("norm" in name for name in norms)
    assert not any(name.startswith("speed/") for name in runner.choose_tasks(["level*/*"]))


def test_a_row_takes_the_benchmark_before_the_race(runner: ModuleType) -> None:
    row = runner.row_of("level1/x", VERDICT, 12.34)
    assert (row["median_us"], row["floor_percent"], row["cases"], row["seconds"]) == (4.5, 96.2, 3, 12.3)
    without = {**VERDICT, "stages": VERDICT["stages"][:1]}
    assert runner.row_of("level1/x", without, 1.0)["median_us"] == 5.0
    assert runner.cells(row)[5] == "eager 2.00×"


def test_an_error_becomes_a_row_and_the_page_says_why(runner: ModuleType) -> None:
    rows = [
        runner.row_of("level1/a", VERDICT, 1.0),
        runner.row_of("level1/b", {"status": "usage", "summary": "aten.mm\nno pattern"}, 1.0),
    ]
    counted = runner.counts(rows, ["level1/a", "level1/b", "level1/c"])
    assert counted == "3 tasks: 1 verified, 1 usage, 1 not run"
    summary = {"device": "NVIDIA H200", "command": "c", "counts": counted, "seconds": 2.0, "tasks": rows}
    page = runner.markdown({**summary, "not_run": ["level1/c"]})
    assert "- level1/b: aten.mm no pattern" in page and "Not run (time limit): level1/c" in page


def test_after_the_time_limit_nothing_is_started(runner: ModuleType, tmp_path: Path) -> None:
    code = runner.main(["--only", "level1/relu", "--time-limit", "0", "--out", str(tmp_path)])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert code == 1 and summary["not_run"] == ["level1/relu"] and summary["tasks"] == []
    assert "--only 'level1/relu'" in summary["command"] and str(tmp_path) not in summary["command"]


def test_no_such_task(runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--only", "nothing/*", "--out", str(tmp_path)]) == 2
    assert "no task matches nothing/*" in capsys.readouterr().err

"""Sessions that solve real problems through the real tools on the emulated GPU; what they come to is in expected.json.

With few rows, and without calls whose verdict another session shows. One goes through the runner, as a process; the
others run in this process, whose fork server serves them all. `python evals/agent_sessions/run_agent_sessions.py` runs
them whole.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith.commands import generate
from evals.agent_sessions import run_agent_sessions as runner

EVALS = Path(__file__).resolve().parents[2] / "evals"
NAMES = ("first_try", "repaired", "cheat", "out_of_budget")
BY_THE_RUNNER = "cheat"  # the shortest
PLACE = ("--on=emulator", "--out=session", "--json")


def expected_of(name):
    return json.loads((EVALS / "agent_sessions" / name / "expected.json").read_text())


# ------------------------------------------------------------------------------------------------------- whole sessions


def kept_as_expected(name, kept, folder):
    """Assert that the kept files of a session tell what is expected, and nothing of this machine."""
    result = json.loads((kept / "result.json").read_text())
    delivered, source = expected_of(name)["kernel"], EVALS / "agent_sessions" / name
    assert (kept / "kernel.py").exists() == bool(result["kernel"]) == bool(delivered)
    if delivered.endswith(".py"):
        assert (kept / "kernel.py").read_text() == (source / delivered).read_text()
    told = "".join(path.read_text() for path in kept.iterdir())
    assert str(EVALS.parent) not in told and str(folder) not in told and sys.prefix not in told
    assert "<html" in (kept / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in NAMES if name != BY_THE_RUNNER])
def test_a_session_comes_to_what_is_expected(name, tmp_path, monkeypatch, capsys):
    given = runner.copy_scenario(name, tmp_path / name, small=True)
    expected = json.loads((given / "expected.json").read_text())
    monkeypatch.chdir(given)
    code = generate.main(["problem.py", "--agent=script:script.json", *expected["arguments"], *PLACE])
    printed = capsys.readouterr()
    came = runner.Came.of(given, subprocess.CompletedProcess([], code, printed.out, printed.err))
    assert came.place == "emulator" and list(runner.compare(expected, came)) == [], printed.err
    assert json.loads(printed.out)["summary"] == came.result["summary"]
    runner.keep(given / "session", tmp_path / "kept")
    kept_as_expected(name, tmp_path / "kept", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_runner_says_what_a_session_came_to(tmp_path, capsys):
    code = runner.main([BY_THE_RUNNER, "--small", "--on=emulator", f"--out={tmp_path / 'out'}", "--timeout=280"])
    printed = capsys.readouterr().out
    assert code == 0 and printed.rstrip().endswith("ok"), printed
    row = json.loads((tmp_path / "out" / "summary.json").read_text())["sessions"][0]
    assert row["ok"] and row["place"] == "emulator" and row["differences"] == []
    kept_as_expected(BY_THE_RUNNER, tmp_path / "out" / BY_THE_RUNNER, tmp_path)


# --------------------------------------------------------------------------------------------------------- the runner


def wanted(value, place):
    """A value of expected.json as it is at a place."""
    if isinstance(value, dict):
        return wanted(value[place], place) if place in value else wanted(value["any"][0], place)
    return [wanted(item, place) for item in value] if isinstance(value, list) else value


def came_as_expected(name, place="gpu"):
    """A session that came to exactly what is expected at a place."""
    whole = {"draft": [], "closing": [], **expected_of(name)}
    given = {
        key: wanted(whole[key], place) for key in ("exit_code", "kernel", "draft", "turns", "closing", "checkpoints")
    }
    result = {key: wanted(whole[key], place) for key in ("ending", "state")}
    return runner.Came(place=place, result=result, **given)


@pytest.mark.parametrize("place", ["gpu", "emulator"])
@pytest.mark.parametrize("name", NAMES)
def test_every_difference_is_found(name, place):
    expected, came = expected_of(name), came_as_expected(name, place)
    assert list(runner.compare(expected, came)) == []
    other = {
        "exit_code": 5,
        "kernel": "other",
        "turns": [*came.turns[:-1], ["finish · error", "finish"]],
        "checkpoints": [*came.checkpoints, "other"],
        "result": {**came.result, "ending": "silent"},
    }
    for field, value in other.items():
        found = list(runner.compare(expected, dataclasses.replace(came, **{field: value})))
        assert len(found) == 1 and "expected" in found[0]


def test_the_other_place_is_a_difference():
    here = came_as_expected("repaired", "emulator")
    found = list(runner.compare(expected_of("repaired"), dataclasses.replace(here, place="gpu")))
    assert [difference.partition(":")[0] for difference in found] == ["state", "closing", "turns"]


def test_a_session_that_cannot_begin_is_a_difference(tmp_path, capsys):
    assert runner.main(["cheat", f"--out={tmp_path}", "--timeout=0.01"]) == 1
    printed = capsys.readouterr().out
    assert "DIFFERS" in printed and "cheat: no session: not over after 0.01 s" in printed


def test_an_unknown_name_names_those_there_are(capsys):
    assert runner.main(["no_such"]) == 2
    assert "no_such" in (said := capsys.readouterr().err) and all(name in said for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_small_sessions_leave_out_only_calls(name, tmp_path):
    whole = runner.copy_scenario(name, tmp_path / "whole", small=False)
    small = runner.copy_scenario(name, tmp_path / "small", small=True)
    assert (
        "get_inputs(rows=2" in (small / "problem.py").read_text()
        and "get_inputs(rows=2" not in (whole / "problem.py").read_text()
    )
    calls = [
        sum(len(turn["calls"]) for turn in json.loads((folder / "script.json").read_text()))
        for folder in (whole, small)
    ]
    left = len(expected_of(name).get("shown_elsewhere", ()))
    assert calls[0] - calls[1] == left
    assert {path.name for path in whole.iterdir()} == {path.name for path in small.iterdir()}


def test_a_delivered_kernel_carries_its_problem_unchanged():
    """A kernel file stands alone: what it says of its problem is what the problem file says."""
    for name in ("first_try", "repaired"):
        problem = (EVALS / "agent_sessions" / name / "problem.py").read_text()
        definitions = problem[problem.index("def reference_fn") :]
        assert (EVALS / "agent_sessions" / name / expected_of(name)["kernel"]).read_text().endswith(definitions)

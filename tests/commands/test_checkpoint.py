"""`cutesmith checkpoint` through its script: the same answers for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutesmith.commands.checkpoint import main


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text("one\n")
    return path


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_four_actions_for_people(capsys, kernel):
    code, out, _ = run(capsys, "backup", kernel, "--note", "first")
    assert (code, out[:30]) == (0, "kept kernel.py as checkpoint 1")
    kernel.write_text("two\n")
    assert run(capsys, "diff", kernel)[1].endswith("-one\n+two\n")
    assert "is checkpoint 1" in run(capsys, "revert", kernel)[1]
    assert kernel.read_text() == "one\n"
    lines = run(capsys, "list", kernel)[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["1", "2"]
    assert lines[1].endswith("first")


def test_one_json_object_each(capsys, kernel):
    for arguments, key in ((("backup", kernel), "checkpoint"), (("list", kernel), "checkpoints")):
        fields = json.loads(run(capsys, *arguments, "--json")[1])
        assert fields["stage"] == "checkpoint"
        assert fields["exit_code"] == 0
        assert key in fields
    kernel.write_text("two\n")
    assert "+two" in json.loads(run(capsys, "diff", kernel, "--json")[1])["diff"]
    assert json.loads(run(capsys, "revert", kernel, "1", "--json")[1])["checkpoint"]["number"] == 1


def test_the_verdict_of_a_benchmark_is_kept_with_its_median(capsys, kernel, tmp_path):
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"status": "passed", "timings": [{"median_us": 12.5}, {"median_us": 99}]}))
    run(capsys, "backup", kernel, "--verdict", verdict)
    assert "passed 12.5 us" in run(capsys, "list", kernel)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["backup", "none.py"], "none.py cannot be read: No such file or directory"),
        (["backup", "."], "cannot be read: Is a directory"),
        (["revert", "none.py"], "no checkpoint that differs"),
        (["revert", "none.py", "7"], "has no checkpoint '7'"),
        (["diff", "none.py"], "cannot be read"),
        (["backup", "none.py", "3"], "takes no CHECKPOINT"),
        (["diff", "none.py", "1", "2", "3"], "takes at most 2 CHECKPOINT"),
        (["backup", "none.py", "--verdict", "none.json"], "--verdict none.json"),
        (["keep", "none.py"], "invalid choice: 'keep'"),
        ([], "the following arguments are required"),
    ],
)
def test_bad_input_is_usage_with_a_sentence(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_verdict_that_is_no_object_is_refused(capsys, kernel, tmp_path):
    verdict = tmp_path / "verdict.json"
    for text in ("[1]", "{"):
        verdict.write_text(text)
        assert run(capsys, "backup", kernel, "--verdict", verdict)[0] == 2


def test_the_script_works_from_any_folder(run_script, kernel):
    done = run_script("checkpoint_kernel", "backup", kernel, "--json", cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["checkpoint"]["number"] == 1

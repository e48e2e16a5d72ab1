"""`cutesmith audit`: every file gets its row, one process serves all, the exit code is the first failure's."""

from __future__ import annotations

import json

import pytest

from cutesmith.commands.audit import main

GOOD = """\
import torch


def reference_fn(x, y):
    return (x @ y).to(x.dtype)


def get_inputs(rows=4096):
    return [torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
"""
WARNED = GOOD.replace(
    "return (x @ y).to(x.dtype)", "return torch.zeros_like(x).scatter(1, torch.topk(x @ y, 3)[1], 1.0)"
)
CONSTANT = GOOD.replace("return (x @ y).to(x.dtype)", "return torch.ones_like(x)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    texts = {"a_good": GOOD, "b_warned": WARNED, "c_constant": CONSTANT, "d_broken": "def reference_fn(:\n"}
    (folder / "level1").mkdir()
    for name, text in texts.items():
        (folder / "level1" / f"{name}.py").write_text(text)
    return folder


@pytest.mark.slow
def test_a_folder_is_audited_whole_and_a_missing_file_is_a_row(folder, capsys):
    assert main([str(folder), str(folder / "gone.py"), "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert [problem["status"] for problem in said["problems"]] == ["accepted", "accepted", "usage", "usage", "usage"]
    assert said["summary"].startswith("2 of 5 problems can be used, 1 with warnings; the first: c_constant.py")
    good, warned, constant, broken, gone = said["problems"]
    assert good["work"]["flops"] == {"bfloat16": 2 * 4096**3} and good["findings"] == []
    assert [finding["rule"] for finding in warned["findings"]] == ["ties"]
    assert constant["findings"][0]["severity"] == "error"
    assert "d_broken.py" in broken["summary"] and "no such file" in gone["summary"]
    assert len({json.dumps(problem["confinement"]) for problem in (good, warned, constant)}) == 1


def test_what_is_wrong_and_what_to_do_are_lines_of_their_own(tmp_path, capsys):
    path = tmp_path / "problem.py"
    path.write_text(
        'import torch\ndef reference_fn(x): return x\ndef get_inputs(): return torch.ones(9, device="cuda")\n'
    )
    assert main([str(path)]) == 2
    assert capsys.readouterr().out.splitlines()[2:4] == [
        "    usage: problem.py: get_inputs() returned a Tensor, not a list of inputs",
        "    Write: return [x, y]",
    ]


def test_people_see_a_row_and_the_remarks_of_each(folder, capsys):
    files = [str(folder / "level1" / f"{name}.py") for name in ("b_warned", "a_good")]
    assert main(files) == 0
    out, errors = capsys.readouterr()
    head, warned, remark, good, last = out.splitlines()
    assert head.split() == ["problem", "MB", "GFLOP", "µs", "at", "4", "TB/s", "µs", "at", "peak"]
    assert warned.split()[0] == "level1/b_warned.py" and good.split()[:3] == ["level1/a_good.py", "100.7", "137.4"]
    assert remark.strip().startswith("line 4: warning ties: the result depends on") and "stable=True" in remark
    assert last.startswith("2 of 2 problems can be used, 1 with warnings (") and errors == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: FILE"),
        (["--timeout=0", "a.py"], "more than 0"),
        (["--arch=sm_1", "a.py"], "not an architecture"),
    ],
)
def test_what_is_asked_wrongly_is_said(arguments, said, capsys):
    assert main(arguments) == 2 and said in capsys.readouterr().err


def test_an_empty_folder_holds_nothing_to_audit(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2 and "holds no *.py" in capsys.readouterr().err


def test_draws_that_depend_on_the_results_at_hand_are_told_as_tried(folder, capsys):
    assert main([str(folder / "level1" / "a_good.py")]) == 0
    assert "    verify draws `x` (float) in " in capsys.readouterr().out

"""Suites by name, folder and file: which tasks they hold, and what is said of those that hold none."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from cutesmith.errors import ContractError, UsageError
from cutesmith.evals.records import Task
from cutesmith.evals.suites import SUITE_NAMES, load_suite, tolerance_of

PROBLEM = '''"""Twice a matrix."""
import torch

LEVEL = 2
TAGS = ("elementwise", "bf16")

def reference_fn(x): return 2 * x
def get_inputs(): return [torch.randn(8, 8, device="cuda")]
'''
RUNS = "raise SystemExit('it was run')\n"
MODEL = """import torch

class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x)

def get_inputs(): return [torch.rand(4, 4)]
def get_init_inputs(): return []
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def one_task(folder: Path, text: str) -> Task:
    return load_suite(write(folder, {"task.py": text}) / "task.py").tasks[0]


def names(suite: object) -> list[str]:
    return [task.id for task in suite.tasks]  # type: ignore[attr-defined]


def test_core_is_the_four_levels_and_speed_is_apart() -> None:
    core = names(load_suite("core"))
    assert core == [name for level in range(1, 5) for name in names(load_suite(f"level{level}"))]
    assert "level1/softmax" in core and not set(core) & set(names(load_suite("speed")))


def test_a_file_is_read_and_never_run(tmp_path: Path) -> None:
    task = one_task(tmp_path, PROBLEM + RUNS)
    assert (task.id, task.level, task.tags, task.dtypes) == ("task", 2, ("elementwise", "bf16"), ("bf16",))
    assert task.sha256 == hashlib.sha256((tmp_path / "task.py").read_bytes()).hexdigest()
    assert task.path == tmp_path / "task.py" and task.tolerance == "strict"


def test_metadata_are_literals_and_names_above(tmp_path: Path) -> None:
    text = PROBLEM + 'EIGHT = "fp8"\nDTYPES = [EIGHT]\nARCHS = ("sm_90a",)\nALGORITHMIC_FLOPS = 9 ** 9 ** 9 ** 9\n'
    task = one_task(tmp_path, text + "def ALGORITHMIC_BYTES(x): return 7\n")
    assert (task.dtypes, task.archs) == (("fp8",), ("sm_90a",))
    assert [task.dtypes for task in load_suite("level1", ids=["mixed_add"]).tasks] == [("fp16", "fp32")]


@pytest.mark.parametrize(
    "line, told",
    [
        ("LEVEL = 'two'", "LEVEL is 'two'"),
        ("LEVEL = True", "LEVEL is True"),
        ("TAGS = 'softmax'", "TAGS is 'softmax'"),
        ("TAGS = (1, 2)", "TAGS is (1, 2)"),
        ("ALGORITHMIC_BYTES = -1", "ALGORITHMIC_BYTES is -1"),
    ],
)
def test_metadata_of_another_type_is_named_with_its_file(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(UsageError, match="task.py") as error:
        one_task(tmp_path, PROBLEM + line + "\n")
    assert told in error.value.message


def test_a_folder_is_a_suite_and_its_subfolders_say_the_level(tmp_path: Path) -> None:
    plain = PROBLEM.replace("LEVEL = 2\n", "")
    files = {"level3/b 1.py": plain, "level3/a.py": plain, "c.py": PROBLEM, "_helper.py": "x = 1", ".hidden/d.py": "?"}
    suite = load_suite(write(tmp_path / "mine", files))
    assert suite.name == "mine"
    assert [(task.id, task.level) for task in suite.tasks] == [("c", 2), ("level3/a", 3), ("level3/b 1", 3)]


def test_ids_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    folder = write(tmp_path, {f"{number}_x.py": PROBLEM for number in (10, 9, 100, 1)})
    assert names(load_suite(folder)) == ["1_x", "9_x", "10_x", "100_x"]


def test_tasks_are_chosen_by_id_pattern_level_and_tag() -> None:
    assert names(load_suite("core", ids=["softmax", "level2/rms_norm"])) == ["level1/softmax", "level2/rms_norm"]
    assert all(name.startswith("level2/rms") for name in names(load_suite("core", ids=["level2/rms*"])))
    assert {task.level for task in load_suite("core", levels=[3, 4]).tasks} == {3, 4}
    assert "level4/paged_attention_decode" in names(load_suite("core", tags=["attention", "paged"]))


@pytest.mark.parametrize(
    ("name", "choice", "told", "hints"),
    [
        ("cores", {}, "cores: no suite", ("Did you mean core?", *SUITE_NAMES)),
        ("core", {"ids": ["level1/softmaks"]}, "no task 'level1/softmaks'", ("level1/softmax",)),
        ("speed", {"levels": [4]}, "no task of speed is left", ("Levels: 1, 2;",)),
        ("core", {"path": "here"}, "core has its own files", ("--suite kernelbench",)),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(name: str, choice: Any, told: str, hints: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=told) as error:
        load_suite(name, **choice)
    assert all(hint in error.value.hint for hint in hints)


@pytest.mark.parametrize(
    "text, told",
    [
        ("x = 1\n", "broken.py"),
        ("def f(:\n", "broken.py:1: syntax error"),
        ("def kernel_fn(x): return x\n", "broken.py"),
        ("\0" * 100, "broken.py"),
        ("#" * 10_000_000, "10,000,000 bytes"),
    ],
    ids=["no functions", "syntax", "no problem", "binary", "huge"],
)
def test_a_file_that_is_no_problem_is_named(tmp_path: Path, text: str, told: str) -> None:
    folder = write(tmp_path, {"fine.py": PROBLEM, "broken.py": text})
    with pytest.raises((UsageError, ContractError), match=told):
        load_suite(folder)


def test_an_empty_folder_is_no_suite(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no .py file"):
        load_suite(tmp_path)


def test_two_files_whose_ids_differ_in_case_alone_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"softmax.py": PROBLEM, "Softmax.py": PROBLEM})
    if len(list(tmp_path.iterdir())) < 2:
        pytest.skip("this file system knows no case")
    with pytest.raises(UsageError, match="names several tasks"):
        load_suite(tmp_path)


def checkout_of(folder: Path) -> Path:
    """Files in the form of KernelBench's, and what else lies in such a checkout."""
    files = {f"KernelBench/level{level}/{number}_Relu.py": MODEL for level in (1, 2, 3, 4) for number in (2, 10)}
    return write(folder, {**files, "KernelBench/level1/notes.py": "x = 1", "src/kernelbench/eval.py": RUNS})


def test_a_checkout_of_kernelbench_is_a_suite_of_its_own_tolerance(tmp_path: Path) -> None:
    suite = load_suite("kernelbench", path=checkout_of(tmp_path))
    assert names(suite) == [f"level{level}/{number}_Relu" for level in (1, 2, 3) for number in (2, 10)]
    assert {(task.dtypes, task.tolerance) for task in suite.tasks} == {(("fp32",), "kernelbench")}
    assert [task.level for task in suite.tasks] == [1, 1, 2, 2, 3, 3]
    assert load_suite("kernelbench", path=tmp_path / "KernelBench").tasks == suite.tasks


def test_a_problem_of_kernelbench_is_chosen_by_its_number(tmp_path: Path) -> None:
    suite = load_suite("kernelbench", path=checkout_of(tmp_path), levels=[2], ids=["10"])
    assert names(suite) == ["level2/10_Relu"]


def test_kernelbench_without_a_checkout_says_where_to_get_it(tmp_path: Path) -> None:
    for path in (None, tmp_path, tmp_path / "gone"):
        with pytest.raises(UsageError) as error:
            load_suite("kernelbench", path=path)
        assert "git clone https://github.com/ScalingIntelligence/KernelBench" in error.value.hint


def test_the_tolerance_is_the_judges_own_or_kernelbenchs_by_precision(tmp_path: Path) -> None:
    ours, theirs = one_task(tmp_path, PROBLEM), load_suite("kernelbench", path=checkout_of(tmp_path)).tasks[0]
    assert tolerance_of(ours) is None and tolerance_of(theirs, "strict") is None
    assert tolerance_of(theirs) == 1e-4
    assert tolerance_of(ours, "kernelbench") == 1e-2
    with pytest.raises(UsageError, match="no such tolerance"):
        tolerance_of(ours, "loose")

"""What the audit of a suite's tasks finds beyond the audit of any problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cutesmith.audit.problem_audit import ProblemAuditor
from cutesmith.evals.suites import load_suite
from cutesmith.evals.suites.task_audit import TaskAudit, audit_task

SOUND = '''"""A product of {rows} rows."""
import torch

LEVEL = 3
TAGS = ("matmul", "bf16")

def reference_fn(x, w):
    return x @ w

def get_inputs(rows={rows}, columns=2048):
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    return [x, torch.randn(columns, columns, device="cuda", dtype=torch.bfloat16)]

def get_input_sets():
    for rows in (1, 33):
        yield get_inputs(rows, 64)
'''
FAULTS = {
    "no level": (("LEVEL = 3\n", ""), "LEVEL is 0"),
    "no tags": (('TAGS = ("matmul", "bf16")\n', ""), "no TAGS"),
    "no dtypes": (('"bf16")', '"odd")'), "no DTYPES"),
    "no docstring": (('"""A product of 8192 rows."""\n', ""), "no docstring"),
    "no float64": (("return", "assert x.dtype is torch.bfloat16\n    return"), "no-float64"),
    "random": (("return x @ w", "return x @ w + torch.rand_like(x)"), "random numbers"),
    "few sets": (("(1, 33)", "(33,)"), "1 of at least 2 sets"),
    "small": (("rows=8192, columns=2048", "rows=64, columns=128"), "its floor is"),
    "reads little": (("LEVEL = 3", "LEVEL = 3\nALGORITHMIC_BYTES = ALGORITHMIC_FLOPS = 1000"), "its floor is"),
}


@pytest.fixture(scope="module")
def auditor() -> Iterator[ProblemAuditor]:
    with ProblemAuditor() as started:
        yield started


def audited(folder: Path, text: str, auditor: ProblemAuditor) -> TaskAudit:
    (folder / "task.py").write_text(text, encoding="utf-8")
    return audit_task(load_suite(folder / "task.py").tasks[0], auditor)


def test_a_sound_task_has_no_fault_and_a_floor_by_its_operations(tmp_path: Path, auditor: ProblemAuditor) -> None:
    found = audited(tmp_path, SOUND.format(rows=8192), auditor)
    assert found.faults == () and found.floor is not None and found.floor.kind == "flops"
    assert found.floor.us == pytest.approx(2 * 8192 * 2048 * 2048 / 989.4e12 * 1e6)


def test_bytes_set_the_floor_of_a_thin_product(tmp_path: Path, auditor: ProblemAuditor) -> None:
    found = audited(tmp_path, SOUND.format(rows=8).replace("2048", "8192"), auditor)
    assert found.faults == () and found.floor is not None and found.floor.kind == "bytes"
    assert found.floor.us == pytest.approx(2 * (2 * 8 * 8192 + 8192**2) / 4e12 * 1e6)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(tmp_path: Path, auditor: ProblemAuditor, name: str) -> None:
    (before, after), told = FAULTS[name]
    text = SOUND.format(rows=8192)
    assert before in text
    assert any(told in fault for fault in audited(tmp_path, text.replace(before, after), auditor).faults)


BOUND = '''"""Rows of a table, in the order of a permutation."""
import torch

LEVEL = 4
TAGS = ("gather", "fp32")
DERIVED_SHAPES = False

def reference_fn(table, order):
    torch._assert_async((order.sort().values == torch.arange(len(order))).all(), "no permutation")
    return table[order]

def get_inputs(groups=4096, members=64):
    rows = groups * members
    return [torch.randn(rows, 32, device="cuda"), torch.randperm(rows, device="cuda").flip(0)]

def get_input_sets():
    yield get_inputs(3, 5)
    yield get_inputs(1, 1)
'''


def test_a_task_whose_sizes_belong_together_is_tried_on_its_own_sets(tmp_path: Path, auditor: ProblemAuditor) -> None:
    """Smaller draws of get_inputs() are refused here: that is not a fault, and nothing is drawn at full size."""
    found = audited(tmp_path, BOUND, auditor)
    assert found.faults == () and found.verdict.sets == ("float32[15, 32], int64[15]", "float32[1, 32], int64[1]")


def test_a_refused_set_is_a_fault_all_the_same(tmp_path: Path, auditor: ProblemAuditor) -> None:
    found = audited(tmp_path, BOUND.replace("table[order]", "table[order].view(-1, 5, 32)"), auditor)
    assert any("get_input_sets()" in fault and "invalid for input" in fault for fault in found.faults)

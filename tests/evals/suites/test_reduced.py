"""Suites at smaller sizes: each file takes the smallest that the audit accepts, and a copy is made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutesmith.evals.suites import load_suite
from cutesmith.evals.suites.reduced import reduce_suite

RELU = """
import torch
rows, columns = 4096, 65536
def reference_fn(x):
    return torch.relu(x)
def get_inputs():
    return [torch.randn(rows, columns, device="cuda")]
"""
NEEDS_64 = """
import torch
batch, width = 4096, 2048
def reference_fn(x):
    assert x.shape[1] == 64 or x.shape[1] == 2048, "other widths have no meaning"
    return x * 2
def get_inputs():
    return [torch.randn(batch, width, device="cuda")]
"""


@pytest.mark.slow
def test_a_task_becomes_a_copy_at_the_smallest_sizes_that_it_takes(tmp_path):
    files = tmp_path / "level1"
    files.mkdir()
    (files / "relu.py").write_text(RELU)
    (files / "width.py").write_text(NEEDS_64)
    suite = load_suite(tmp_path)
    first = reduce_suite(suite, tmp_path / "run" / "problems")
    assert [task.id for task in first.tasks] == [task.id for task in suite.tasks]
    assert all(a.sha256 != b.sha256 and a.level == b.level for a, b in zip(first.tasks, suite.tasks, strict=True))
    relu, width = (Path(task.path).read_text() for task in first.tasks)
    assert "all to 16" in relu and "rows, columns = (16, 16)" in relu
    assert "large ones by 32" in width and "batch, width = (128, 64)" in width
    Path(first.tasks[0].path).write_text(RELU)  # what an earlier part of a run made is kept
    assert reduce_suite(suite, tmp_path / "run" / "problems").tasks[0].sha256 == suite.tasks[0].sha256

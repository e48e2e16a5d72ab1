"""Problems at smaller sizes: each file takes the smallest that the audit accepts."""

from __future__ import annotations

import pytest

from cutesmith.evals.suites.reduced import reduced_text

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
@pytest.mark.parametrize(
    ("source", "way", "numbers"),
    [
        (RELU, "all to 16, images to 8, the batch to 2", "rows, columns = (16, 16)"),
        (NEEDS_64, "large ones by 32", "batch, width = (128, 64)"),
    ],
)
def test_a_problem_becomes_a_copy_at_the_smallest_sizes_that_it_takes(write_file, source, way, numbers):
    path = write_file(source, "problem.py")
    text = reduced_text(path)
    assert text.startswith(f"# problem.py with smaller numbers at module scope: {way}.\n") and numbers in text
    assert path.read_text() == source

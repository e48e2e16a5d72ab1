"""A dispatch mode of ours brings no compiler along, and is not compiled by one that other code brings."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from cutesmith.judge.candidate_side.watching import KernelWatch

x = torch.ones(4)
with KernelWatch("cpu") as watch:
    torch.empty_like(x).copy_(x + 1)
assert watch.computed == {"add": 1}, watch.computed
assert "torch._dynamo" not in sys.modules

doubled = torch.compile(lambda x: 2 * x, backend="eager")
for _ in range(2):
    with KernelWatch("cpu") as watch:
        assert doubled(x).tolist() == [2.0] * 4
    assert watch.computed == {"mul": 1}, watch.computed
assert "torch._dynamo" in sys.modules
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_operations_are_counted_without_torchs_compiler_and_beside_it():
    """In a process of its own: other tests may have imported the compiler into this one."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

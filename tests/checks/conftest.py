"""A GPU that others use too, without the lock."""

import subprocess
import sys

import pytest

NEIGHBOUR = """
import torch
memory = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
print("busy", flush=True)
while True:
    memory.add_(1)
    torch.cuda._sleep(2_000_000)
    torch.empty(1 << 27, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
"""


@pytest.fixture
def crowded_gpu():
    """Nine other processes that compute on the GPU and allocate there."""
    busy = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE) for _ in range(9)]
    try:
        assert all(process.stdout is not None and process.stdout.readline() for process in busy)
        yield
    finally:
        for process in busy:
            process.kill()
            process.communicate()

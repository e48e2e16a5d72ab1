"""Kernels whose views follow the sizes of the inputs: other inputs than the traced ones, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, exactly, first_kernel, move, normal

CASES = {
    "heads": (
        lambda x, w: F.linear(x, w).view(*x.shape[:2], 2, -1).transpose(1, 2).relu(),
        [[(2, 3, 8), (6, 8)], [(1, 7, 8), (6, 8)], [(4, 1, 12), (10, 12)]],
    ),
    "image": (
        lambda x, w: F.conv2d(x, w, padding=1),
        [[(2, 4, 5, 6), (8, 4, 3, 3)], [(1, 4, 9, 3), (8, 4, 3, 3)], [(3, 1, 1, 8), (5, 1, 3, 3)]],
    ),
    "flat": (lambda x: (x.flatten(1) * 2).unsqueeze(1), [[(3, 4, 5)], [(1, 1, 7)], [(2, 6, 1)]]),
    "reshaped": (lambda x: x.softmax(-1).view(x.shape[0] // 2, -1), [[(4, 6)], [(2, 5)], [(8, 3)]]),
    "squeezed": (lambda x: x.sum(-1, keepdim=True).squeeze(-1).unsqueeze(0), [[(4, 8)], [(1, 5)], [(9, 1)]]),
    "size_of_no_operand": (
        lambda x, y: (y * 2).sum() + torch.arange(x.shape[0], device=x.device),
        [[(3, 2), (4,)], [(9, 2), (4,)], [(5, 1), (4,)]],
    ),
    "stretched": (lambda x: (x * 2).expand(3, *x.shape) + x.shape[0], [[(4, 5)], [(7, 2)]]),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ("heads", "image"))) for n in CASES])
def test_one_kernel_serves_other_sizes(name, tmp_path):
    function, shapes = CASES[name]
    with emulated_device("sm_80"):
        inputs = [[normal(*shape, seed=seed) for seed, shape in enumerate(each)] for each in shapes]
        kernel = first_kernel(plan_kernel(trace_function(function, inputs[0]), "sm_80"), tmp_path)
        for given in inputs:
            found = as_list(kernel.kernel_fn(*map(move, given)))
            for ours, exact in zip(found, exactly(function, given), strict=True):
                assert ours.shape == exact.shape
                torch.testing.assert_close(ours.cpu(), exact, rtol=1e-5, atol=1e-5, check_dtype=False)


def test_a_number_without_dimensions_comes_back_as_one(tmp_path):
    function = lambda x: (x * 2).squeeze()  # noqa: E731
    with emulated_device("sm_80"):
        kernel = first_kernel(plan_kernel(trace_function(function, [normal(1, 1)]), "sm_80"), tmp_path)
        assert kernel.kernel_fn(move(normal(1, 1))).shape == ()

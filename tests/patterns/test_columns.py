"""Reductions over dimensions that are not the last: what their kernels compute on the emulated GPU, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, load, move, normal

TOLERANCE = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 1e-5, torch.float64: 1e-12}
X = normal(4, 33, 20)
IMAGES = normal(3, 6, 5, 8)
HALVES = normal(3, 40, 64, dtype=torch.bfloat16)
CHANNELS = normal(6, seed=1), normal(6, seed=2).abs()


def moved_statistics(x, mean, variance):
    mean, variance = mean.clone(), variance.clone()
    y = F.batch_norm(x, mean, variance, training=True, momentum=0.3)
    return y, mean, variance


CASES = {
    "sum": (lambda x: x.sum(1), [X], "rows"),
    "softmax": (lambda x: x.softmax(1), [HALVES], "rows"),
    "first": (lambda x: x.log_softmax(0), [X], "rows"),
    "extremes": (lambda x: (*x.min(1), x.argmax(1, keepdim=True)), [X], "rows"),
    "not adjacent": (lambda x, w: (x - x.mean((0, 2), keepdim=True)) * w[None, :, None], [X, normal(33)], "rows"),
    "permuted": (lambda x, w: F.layer_norm(x.permute(0, 2, 3, 1), (6,), w), [IMAGES, CHANNELS[0]], "rows"),
    "transposed": (lambda x: x.transpose(0, 1).var(0), [normal(16, 24)], "rows"),
    "moved statistics": (moved_statistics, [IMAGES, *CHANNELS], "rows"),
    "reduced twice": (lambda x: x.amax(3).sum(1), [IMAGES], "cut"),
    "different shapes": (lambda x: (x.sum(1), x.amax(-1)), [X], "cut"),
    "float64": (lambda x: x.softmax(1), [X.double()], "rows"),
}


def computed(plan, configuration, inputs, folder):
    """The kernel's outputs on the emulated GPU."""
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(configuration), folder).kernel_fn
        return [out.cpu() for out in as_list(kernel_fn(*map(move, inputs)))]


def check(outs, function, inputs):
    exact = as_list(function(*(x.double() for x in inputs)))
    for ours, theirs, expected in zip(outs, as_list(function(*inputs)), exact, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        tolerance = TOLERANCE.get(ours.dtype, 0)
        torch.testing.assert_close(ours.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_pytorch_does(name, tmp_path):
    function, inputs, pattern = CASES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert plan.pattern == pattern
    check(computed(plan, plan.configurations()[0], inputs, tmp_path), function, inputs)

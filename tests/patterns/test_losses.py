"""Losses over classes that are not the last dimension: the logits are read by one launch, however they are said."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_hopper, exactly, first_kernel, move, normal


def labels(*shape: int, below: int = 7) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).mul(5).remainder(below).view(shape)


def by_pixels(x, t):
    return F.cross_entropy(x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]), t.reshape(-1))


IMAGES = normal(3, 7, 8, 16), labels(3, 8, 16)
WEIGHTS = normal(7).abs()
CASES = {
    "pixels": (F.cross_entropy, IMAGES),
    "flattened": (by_pixels, IMAGES),
    "ignored": (lambda x, t: F.cross_entropy(x, t, ignore_index=2), IMAGES),
    "weighted": (lambda x, t, w: F.cross_entropy(x, t, w), (*IMAGES, WEIGHTS)),
    "weighted_each": (lambda x, t, w: F.cross_entropy(x, t, w, reduction="none"), (*IMAGES, WEIGHTS)),
    "weighted_by_shares": (lambda x, t, w: F.cross_entropy(x, t, w / w.sum()), (*IMAGES, WEIGHTS)),
    "smoothed": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=2), IMAGES),
    "tokens": (lambda x, t: F.cross_entropy(x.transpose(1, 2), t), (normal(3, 8, 40), labels(3, 8))),
    "tokens_each": (
        lambda x, t: F.cross_entropy(x.transpose(1, 2), t, reduction="none"),
        (normal(3, 8, 40), labels(3, 8)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_that_of_pytorch(name, tmp_path):
    function, inputs = CASES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    with emulated_hopper():
        found = first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    (exact,) = exactly(function, inputs)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)


def launches_that_read(plan, place: int) -> int:
    return sum(place in launch.takes for launch in plan.launches)


@pytest.mark.parametrize("name", ["pixels", "flattened", "ignored", "weighted", "smoothed", "tokens"])
def test_one_launch_reads_the_logits(name):
    function, inputs = CASES[name]
    with torch.device("meta"):
        large = [torch.empty(*[4 * size if size > 7 else size for size in x.shape], dtype=x.dtype) for x in inputs]
    plan = plan_kernel(trace_function(function, large), "sm_90a")
    assert launches_that_read(plan, 0) == 1

"""Results that are a few slices along a dimension, as the planes of an image: a thread has an element of each slice."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.patterns.cutting.short_reductions import with_taken_reductions
from cutesmith.patterns.elementwise.plan import ElementwisePlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, emulated_hopper, exactly, first_kernel, move, normal


def planes(x):
    red, green, blue = x[:, 0], x[:, 1], x[:, 2]
    light = 0.3 * red + 0.6 * green + 0.1 * blue
    return torch.stack((light, red - light, blue - light), 1)


def saturation(x):
    """Of the channels of an image, whose extremes each plane reads."""
    top, low = x.amax(1), x.amin(1)
    return torch.stack((torch.where(top == x[:, 0], low, x[:, 1]), (top - low) / (top + 1), top), 1)


def two_results(x, y):
    return torch.stack((x + y, x - y)), torch.stack((x > y, x < 0)).flatten(0, 1)


def turned(x, y):
    """Rows of a stack in the middle, and an argument for each of them."""
    return torch.stack((x * y, y), 1) * torch.arange(1, 3, device=x.device)[:, None]


def beside_a_constant(x):
    """A slice of another type: the function fills the other one with a number of float32."""
    out = torch.full((2, *x.shape), 2.0, dtype=torch.bfloat16, device=x.device)
    out[0] = x.sqrt().to(torch.bfloat16)
    return out


CASES = {
    "planes": (planes, [(normal(2, 3, 5, 12),), (normal(1, 4, 7, 3),), (normal(2, 3, 4, 24)[..., ::2],)]),
    "saturation": (saturation, [(normal(2, 3, 5, 12),), (normal(3, 3, 2, 7),)]),
    "two results": (two_results, [(normal(6, 8), normal(6, 8, seed=1)), (normal(5, 9), normal(5, 9, seed=1))]),
    "beside a constant": (beside_a_constant, [(normal(3, 129).abs(),), (normal(2, 8).abs(),)]),
    "turned": (turned, [(normal(6, 8), normal(6, 8, seed=1)), (normal(8, 6).t(), normal(6, 8, seed=1))]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_slices_are_computed_by_one_thread(name, tmp_path):
    function, sets = CASES[name]
    plan = plan_kernel(trace_function(function, sets[0]), "sm_90a")
    assert isinstance(plan, ElementwisePlan) and plan.slices is not None
    module = first_kernel(plan, tmp_path)
    with emulated_hopper():
        for inputs in sets:
            outs = as_list(module.kernel_fn(*map(move, inputs)))
            for ours, theirs in zip(outs, exactly(function, inputs), strict=True):
                assert ours.is_contiguous()
                close(1e-5)(ours.cpu(), theirs)


def test_extremes_of_channels_are_those_of_slices():
    inputs = [normal(2, 3, 4, 5)]
    inputs[0][0, 1, 2, 3] = math.nan
    graph = with_taken_reductions(trace_function(saturation, inputs))
    assert not any(node.is_reduction or node.op == "stored" for node in graph.nodes())
    for ours, theirs in zip(interpret(graph, inputs), exactly(saturation, inputs), strict=True):
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_the_bytes_of_slices_are_read_and_written_once():
    plan = plan_kernel(trace_function(saturation, [torch.empty(32, 3, 512, 512, device="meta")]), "sm_90a")
    assert plan.algorithmic_bytes == 2 * 32 * 3 * 512 * 512 * 4


def test_slices_of_places_further_on_keep_their_coordinates():
    shifted = lambda x: torch.stack((x, x.roll(1, 0)))  # noqa: E731
    plan = plan_kernel(trace_function(shifted, [normal(6, 8)]), "sm_90a")
    assert isinstance(plan, ElementwisePlan) and plan.slices is None

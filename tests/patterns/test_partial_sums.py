"""Norms' backward passes: sums over rows in the launch that reduces each row, against float64 on the emulated GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, load, move, normal

BF16 = torch.bfloat16
TOLERANCE = {BF16: 2**-7, torch.float32: 1e-5}


def rms_norm(x, w, gradient):
    return vjp(lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6), x, w)[1](gradient)


def layer_norm(x, w, b, gradient):
    return vjp(lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), x, w, b)[1](gradient)


def normed_images(x, w, gradient):
    return vjp(lambda x, w: F.layer_norm(x, x.shape[1:], w), x, w)[1](gradient)


def by_hand(x, w, gradient):
    """As kernels for training return it: the gradient of the input in its own type, the weight's in float32."""
    x, gradient = x.float(), gradient.float()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    normed, scaled = x * scale, gradient * w.float()
    given = scale * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))
    return given.to(torch.bfloat16), (gradient * normed).sum((0, 1))


def tensors(rows, dtype, columns, weights):
    """An input, weights, and the gradient of the result."""
    return [
        normal(*rows, *columns, dtype=dtype),
        *(normal(*columns, dtype=dtype, seed=seed) for seed in range(1, weights + 1)),
        normal(*rows, *columns, dtype=dtype, seed=9),
    ]


CASES = {
    "rms norm": (rms_norm, lambda rows: tensors((rows,), BF16, (1032,), 1)),
    "layer norm": (layer_norm, lambda rows: tensors((rows,), torch.float32, (72,), 2)),
    "images": (normed_images, lambda rows: tensors((rows,), BF16, (3, 5, 7), 1)),
    "by hand": (by_hand, lambda rows: tensors((2, rows), BF16, (64,), 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_norm_and_the_sums_over_its_rows_are_one_launch(name, tmp_path):
    function, drawn = CASES[name]
    inputs = drawn(20)
    plan = plan_kernel(trace_function(function, inputs), "sm_90a", free_sizes=True)
    assert isinstance(plan, ChainPlan)
    assert [launch.plan.pattern for launch in plan.launches] == ["rows", "columns"]
    source = plan.render(plan.configurations("sm_90a")[0])
    with emulated_device("sm_90a"):
        kernel_fn = load(source, tmp_path).kernel_fn
        for rows in (20, 130, 3, 0):
            given = drawn(rows)
            results = [out.cpu() for out in as_list(kernel_fn(*map(move, given)))]
            exact = as_list(function(*(x.double() for x in given)))
            for ours, theirs, expected in zip(results, as_list(function(*given)), exact, strict=True):
                assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
                tolerance = TOLERANCE[ours.dtype] * float(expected.abs().max()) if expected.numel() else 0.0
                torch.testing.assert_close(ours.double(), expected.double(), rtol=0, atol=tolerance)


def channels(x, w, gradient):
    return vjp(lambda x, w: F.group_norm(x, 4, w), x, w)[1](gradient)


@pytest.mark.slow
def test_reductions_that_several_launches_read_are_visited_once(tmp_path):
    images, weights = (2, 16, 12, 10), normal(16, seed=1, dtype=BF16)
    inputs = [normal(*images, dtype=BF16), weights, normal(*images, seed=2, dtype=BF16)]
    large = [torch.empty(shape, dtype=BF16, device="meta") for shape in ((8, 64, 64, 64), (64,))]
    plan = plan_kernel(trace_function(channels, [*large, large[0]]), "sm_90a")
    assert isinstance(plan, ChainPlan)
    visits = [launch for launch in plan.launches if launch.plan.graph.moved_bytes >= large[0].numel() * 2]
    assert len(visits) == 3  # moments of groups, sums of channels, the gradient
    source = plan.render(plan.configurations("sm_90a")[0])
    with emulated_device("sm_90a"):
        results = [out.cpu() for out in load(source, tmp_path).kernel_fn(*map(move, inputs))]
    for ours, expected in zip(results, channels(*(x.double() for x in inputs)), strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=0, atol=2**-7 * float(expected.abs().max()))


def test_sums_that_follow_from_other_sums_of_the_same_rows_wait_for_them():
    def batch_norm(x, w, gradient):
        return vjp(lambda x, w: F.relu(F.batch_norm(x, None, None, w, training=True)), x, w)[1](gradient)

    x = torch.empty(64, 128, 56, 56, device="meta")
    graph = trace_function(batch_norm, [x, torch.empty(128, device="meta"), x])
    assert plan_kernel(graph, "sm_90a").graph.outputs == graph.outputs

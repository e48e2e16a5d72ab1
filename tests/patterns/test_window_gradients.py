"""Backward passes of pooling and interpolation: each place reads the windows over it, as PyTorch's in float64."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import check_product, normal


def case(function, *shape, dtype=torch.float32, **options):
    """The gradient of an image, the image, and the gradient of the result."""
    forward = functools.partial(function, **options)
    image = normal(*shape, dtype=torch.float64)
    grad = normal(*forward(image).shape, dtype=torch.float64, seed=1)
    return lambda x, grad: vjp(forward, x)[1](grad)[0], (image.to(dtype), grad.to(dtype))


def scaled(shape, mode, **options):
    return case(F.interpolate, *shape, mode=mode, **options)


BY_TWO = scaled((2, 3, 4, 5), "bilinear", scale_factor=2, align_corners=False)
POOLED = case(F.avg_pool2d, 2, 3, 9, 8, kernel_size=3, stride=2, padding=1)
EVERY = {
    "mean": POOLED,
    "mean_of_elements": case(F.avg_pool2d, 2, 3, 9, 8, kernel_size=3, stride=2, padding=1, count_include_pad=False),
    "mean_of_a_last_window": case(F.avg_pool2d, 2, 3, 8, 7, kernel_size=(3, 2), stride=2, ceil_mode=True),
    "mean_of_whole_padding": case(F.avg_pool2d, 1, 3, 8, 7, kernel_size=3, stride=3, padding=1, ceil_mode=True),
    "divisor": case(F.avg_pool2d, 1, 2, 7, 7, kernel_size=2, stride=3, divisor_override=3),
    "mean_of_a_line": case(F.avg_pool1d, 2, 3, 11, kernel_size=4, stride=1, padding=2),
    "mean_of_volumes": case(F.avg_pool3d, 1, 2, 5, 4, 6, kernel_size=2, stride=(2, 1, 2)),
    "shares": case(F.adaptive_avg_pool2d, 2, 3, 7, 6, output_size=(3, 4)),
    "whole_shares": case(F.adaptive_avg_pool2d, 2, 3, 8, 6, output_size=(2, 3)),
    "more_shares_than_elements": case(F.adaptive_avg_pool1d, 2, 3, 4, output_size=7),
    "largest": case(F.max_pool2d, 2, 3, 9, 8, kernel_size=3, stride=2, padding=1),
    "largest_of_volumes": case(F.max_pool3d, 1, 2, 6, 5, 7, kernel_size=3, stride=2, padding=1, dilation=(1, 2, 1)),
    "largest_of_shares": case(F.adaptive_max_pool2d, 2, 3, 7, 6, output_size=(3, 4)),
    "linear": scaled((2, 3, 7), "linear", scale_factor=3),
    "bilinear": BY_TWO,
    "bilinear_of_another_size": scaled((2, 3, 5, 4), "bilinear", size=(8, 3)),
    "bilinear_aligned": scaled((2, 3, 5, 4), "bilinear", size=(9, 7), align_corners=True),
    "one_place_aligned": scaled((2, 3, 5, 4), "bilinear", size=(1, 7), align_corners=True),
    "bilinear_by_a_scale": scaled((2, 3, 5, 4), "bilinear", scale_factor=1.7),
    "trilinear": scaled((1, 2, 3, 4, 2), "trilinear", scale_factor=2),
    "bicubic": scaled((2, 2, 4, 5), "bicubic", scale_factor=2),
    "bicubic_smaller": scaled((1, 2, 9, 8), "bicubic", size=(4, 5)),
    "nearest": scaled((2, 3, 4, 5), "nearest", scale_factor=2),
    "nearest_of_another_size": scaled((2, 3, 5, 4), "nearest", size=(7, 3)),
    "nearest_exact": scaled((2, 3, 5, 4), "nearest-exact", size=(7, 9)),
    "nearest_of_volumes": scaled((1, 2, 3, 2, 4), "nearest", scale_factor=(2, 1, 3)),
}
SLOW = "mean_of_a_last_window", "shares", "largest_of_volumes", "bilinear_of_another_size", "bicubic_smaller", "nearest"


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = EVERY[name]
    exact = [each.double() for each in inputs]
    (ours,) = interpret(trace_function(function, exact), exact)
    torch.testing.assert_close(ours, function(*exact), rtol=1e-6, atol=1e-6)


def check(function, inputs, folder):
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    check_product(plan, plan.configurations("sm_90a")[0], function, inputs, folder)
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("case", [POOLED, BY_TWO], ids=["mean", "bilinear"])
def test_each_place_is_written_once_and_nothing_is_added_by_atomics(case, tmp_path):
    plan = check(*case, tmp_path)
    patterns = {launch.plan.pattern for launch in getattr(plan, "launches", [])} or {plan.pattern}
    assert patterns == {"elementwise"}


def test_the_largest_of_images_with_channels_last_are_added_to_where_they_lie():
    inputs = [each.to(memory_format=torch.channels_last) for each in (normal(2, 8, 9, 8), normal(2, 8, 5, 4, seed=1))]

    def gradient(x, grad):
        return vjp(functools.partial(F.max_pool2d, kernel_size=3, stride=2, padding=1), x)[1](grad)[0]

    plan = plan_kernel(trace_function(gradient, inputs), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["windows", "scatters"]
    assert plan.graph.output_strides == (inputs[0].stride(),)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_gradients(name, tmp_path):
    check(*EVERY[name], tmp_path)


@pytest.mark.slow
def test_sums_of_16_bits_are_float32(tmp_path):
    check(*case(F.avg_pool2d, 2, 8, 9, 8, kernel_size=3, stride=1, padding=1, dtype=torch.bfloat16), tmp_path)

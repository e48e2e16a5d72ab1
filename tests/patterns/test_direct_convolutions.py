"""Convolutions of few channels without tiles in shared memory, on the emulated GPU against float64; what is chosen."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.contraction.configurations import DirectConfiguration
from cutesmith.patterns.contraction.direct import direct_proposals, is_padded
from cutesmith.patterns.contraction.plan import HOPPER, match
from cutesmith.patterns.graph.window_attributes import Windows
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import close, exactly, load, move, normal

SMALL = DirectConfiguration(8, 2, 128)


def convolved(dims: int, **options):
    convolve = getattr(F, f"conv{dims}d")
    return lambda x, w, b, *r: F.relu(sum(r, convolve(x, w, b, **options)))


def turned(x, w, b):
    return F.relu(F.conv_transpose2d(x, w, b, padding=1))


CASES = {
    "line": (convolved(1, stride=2, dilation=3), (normal(2, 3, 40), normal(11, 3, 4, seed=1), normal(11))),
    "padded": (convolved(2, padding=(1, 2)), (normal(2, 3, 9, 31), normal(9, 3, 3, 3, seed=1), normal(9))),
    "groups": (
        convolved(2, groups=2, stride=(2, 1)),
        (normal(2, 10, 9, 31), normal(12, 5, 3, 2, seed=1), normal(12), normal(2, 12, 4, 30, seed=3)),
    ),
    "volume": (convolved(3), (normal(1, 5, 4, 7, 9), normal(6, 5, 3, 3, 3, seed=1), normal(6))),
    "turned": (turned, (normal(2, 5, 6, 20), normal(7, 5, 3, 3, seed=1).transpose(0, 1), normal(7))),
    "rows behind gaps": (
        convolved(2),
        (normal(2, 3, 9, 40)[..., ::2], normal(6, 3, 3, 3, seed=1), normal(6)),
    ),
    "half precision": (
        convolved(2, padding=1),
        tuple(t.half() for t in (normal(1, 3, 9, 31), normal(9, 3, 3, 3, seed=1), normal(9))),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_results(name, arch, tmp_path):
    if arch == "sm_80" and name not in ("padded", "volume"):
        pytest.skip("one architecture serves these")
    function, inputs = CASES[name]
    plan = match(trace_function(function, inputs))
    with emulated_device(arch) as device:
        out = load(plan.render(SMALL), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    assert list(device.findings) == []
    assert (out.shape, out.dtype) == (function(*inputs).shape, inputs[0].dtype)
    half = inputs[0].dtype == torch.float16
    close(2e-3 if half else 3e-6, of_largest=True)(out, *exactly(function, inputs))


@pytest.mark.slow
def test_other_sizes_are_served_and_other_channels_refused(tmp_path):
    function, inputs = CASES["padded"]
    plan = match(trace_function(function, inputs))
    others = normal(1, 3, 5, 300, seed=4), normal(20, 3, 3, 3, seed=5), normal(20)
    with emulated_device("sm_90a"):
        kernel = load(plan.render(SMALL), tmp_path).kernel_fn
        out = kernel(*map(move, others)).cpu()
        with pytest.raises(ValueError, match="36 elements a feature; this kernel was written for 27"):
            kernel(*map(move, (normal(1, 4, 9, 31), normal(9, 4, 3, 3), normal(9))))
    close(3e-6, of_largest=True)(out, *exactly(function, others))


@pytest.mark.slow
def test_an_infinite_weight_of_a_turned_one_meets_elements_alone(tmp_path):
    function, (x, w, b) = CASES["turned"]
    x, w = x.abs(), w.transpose(0, 1).abs().transpose(0, 1)
    w[:2, :, 0] = math.inf
    plan = match(trace_function(function, (x, w, b)))
    with emulated_device("sm_90a"):
        out = load(plan.render(SMALL), tmp_path).kernel_fn(*map(move, (x, w, b))).cpu()
    expected = function(x, w, b)
    assert expected.isinf().any() and expected.isfinite().any() and not expected.isnan().any()
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def first_choice(image, weights, **options):
    function = getattr(F, f"conv{len(image) - 2}d")
    inputs = [torch.empty(*shape, device="meta") for shape in (image, weights)]
    plan = match(trace_function(lambda x, w: function(x, w, **options), inputs))
    return plan.configurations("sm_90a")[0]


def test_few_channels_are_direct_and_many_are_not():
    assert first_choice((128, 3, 16, 64, 64), (16, 3, 3, 3, 3)) == DirectConfiguration(16, 8, 128)
    assert isinstance(first_choice((128, 8, 256, 256), (64, 8, 3, 3)), DirectConfiguration)
    assert not isinstance(first_choice((128, 256, 64, 64), (256, 256, 3, 3)), DirectConfiguration)


@pytest.mark.parametrize(
    ("function", "padded"),
    [
        (lambda x, w: F.conv2d(x, w, stride=2, dilation=2), False),
        (lambda x, w: F.conv2d(x, w, padding=(0, 1)), True),
        (lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), padding=2), False),
        (lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), padding=1), True),
    ],
)
def test_windows_that_see_places_without_an_element_are_known(function, padded):
    graph = trace_function(function, (normal(1, 3, 9, 12), normal(8, 3, 3, 3)))
    assert is_padded(match(graph).problem) == padded


def test_images_with_channels_last_are_not_direct():
    image = normal(2, 3, 50, 50).to(memory_format=torch.channels_last)
    graph = trace_function(lambda x, w: F.conv2d(x, w), (image, normal(16, 3, 3, 3)))
    assert direct_proposals(match(graph).problem, HOPPER) == []


def test_other_orders_of_weights_and_products_of_matrices_are_not_direct():
    last = trace_function(
        lambda x, w: F.conv2d(x, w), (normal(1, 64, 5, 5), normal(4, 64, 2, 2).to(memory_format=torch.channels_last))
    )
    assert Windows.of(next(node for node in last.nodes() if node.op == "windows")).taps_first
    for graph in (last, trace_function(torch.mm, (normal(5, 6), normal(6, 7)))):
        assert direct_proposals(match(graph).problem, HOPPER) == []


@pytest.mark.parametrize(("channels", "features"), [(100, {8, 16}), (200, {8}), (600, set())])
def test_weights_fit_in_shared_memory(channels, features):
    graph = trace_function(lambda x, w: F.conv2d(x, w), (normal(1, channels, 5, 5), normal(8, channels, 3, 3)))
    assert {c.features for c in direct_proposals(match(graph).problem, HOPPER)} == features

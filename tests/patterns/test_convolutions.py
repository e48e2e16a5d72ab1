"""Convolutions as products with what windows see: results on the emulated GPU and of the graph, against float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.contraction.analysis import Matrix, Seen
from cutesmith.patterns.contraction.hopper.legality import obstacles
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.graph.window_attributes import Windows
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, exactly, load, move, normal

SM90 = parse_arch("sm_90a").sm
BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64


def image(*shape, dtype=torch.float32):
    return normal(*shape, dtype=dtype)


def weights(*shape, dtype=torch.float32):
    return normal(*shape, dtype=dtype, seed=1)


CASES = {
    "two_dimensions": (
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)) * 2,
        (image(2, 4, 9, 10), weights(8, 4, 3, 3), normal(8)),
    ),
}
POINTS = F.conv2d, (image(2, 8, 4, 6), weights(5, 8, 1, 1), normal(5))
SLOW_CASES = {
    "bf16_stride": (
        lambda x, w: F.conv2d(x, w, stride=2),
        (image(1, 6, 11, 9, dtype=BF16), weights(5, 6, 3, 2, dtype=BF16)),
    ),
    "one_dimension": (lambda x, w: F.conv1d(x, w, dilation=3, padding=2), (image(3, 4, 40), weights(6, 4, 4))),
    "three_dimensions": (
        lambda x, w, b: F.conv3d(x, w, b, stride=(1, 2, 1), padding=(0, 1, 1)),
        (image(1, 3, 4, 6, 7), weights(4, 3, 2, 3, 3), normal(4)),
    ),
    "groups": (lambda x, w, b: F.conv2d(x, w, b, groups=2), (image(2, 4, 7, 6), weights(6, 2, 3, 3), normal(6))),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=5, padding=1), (image(2, 5, 8, 8), weights(5, 1, 3, 3))),
    "one_kernel_for_all_groups": (
        lambda x, w: F.conv2d(x, w.expand(x.shape[1], 1, 3, 3), groups=x.shape[1]),
        (image(2, 3, 8, 8), weights(1, 1, 3, 3)),
    ),
    "stride_of_points": (lambda x, w: F.conv2d(x, w, stride=2), (image(2, 4, 7, 6), weights(6, 4, 1, 1))),
    "fp64": (lambda x, w: F.conv2d(x, w, padding=1), (image(1, 3, 5, 6, dtype=F64), weights(4, 3, 3, 3, dtype=F64))),
    "fp16_same": (
        lambda x, w: F.conv2d(x, w, padding="same"),
        (image(1, 3, 8, 9, dtype=F16), weights(4, 3, 3, 5, dtype=F16)),
    ),
    "residual_and_tensor_scale": (
        lambda x, w, s: F.gelu(F.conv2d(x, w, padding=1) * s) + x,
        (image(2, 4, 6, 5), weights(4, 4, 3, 3), normal(4, 1, 1)),
    ),
    "channels_last": (
        lambda x, w: F.conv2d(x, w, padding=1),
        (image(2, 6, 5, 4).to(memory_format=torch.channels_last), weights(3, 6, 3, 3)),
    ),
    "weights_last": (
        lambda x, w: F.conv2d(x, w, padding=1),
        (image(2, 65, 4, 3), weights(3, 65, 2, 3).to(memory_format=torch.channels_last)),
    ),
    "all_padding": (lambda x, w: F.conv2d(x, w, padding=3), (image(1, 2, 2, 2), weights(3, 2, 2, 2))),
}
TRANSPOSED = {
    "one_group": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
        (image(2, 4, 5, 6), weights(4, 3, 3, 3), normal(3)),
    ),
    "groups": (
        lambda x, w: F.conv_transpose1d(x, w, stride=3, dilation=2, groups=2),
        (image(2, 4, 9), weights(4, 3, 4)),
    ),
    "three_dimensions": (
        lambda x, w: torch.sigmoid(F.conv_transpose3d(x, w, padding=1)),
        (image(1, 3, 3, 4, 3), weights(3, 2, 3, 2, 3)),
    ),
}
TRANSPOSED_WITH_BIAS = TRANSPOSED["one_group"][0]
EVERY = {**CASES, "points": POINTS, **SLOW_CASES, **{f"transposed_{name}": case for name, case in TRANSPOSED.items()}}


def check(function, inputs, folder, plan=None, arch="sm_80", configuration=None):
    plan = plan or match(trace_function(function, inputs))
    with emulated_device(arch):
        kernel = load(plan.render(configuration or plan.configurations(arch)[0]), folder)
        outs = [out.cpu() for out in as_list(kernel.kernel_fn(*map(move, inputs)))]
    for ours, theirs in zip(outs, exactly(function, inputs), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        tolerance = {BF16: 1e-2, F16: 2e-3, torch.float32: 3e-6, F64: 1e-13}[theirs.dtype]
        size = max(1.0, float(theirs.double().abs().max())) if theirs.numel() else 1.0
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * size)


@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    check(*CASES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "inputs",
    [
        (image(2, 71, 7, 7, dtype=BF16), weights(40, 71, 1, 1, dtype=BF16), normal(40, dtype=BF16)),
        POINTS[1],
    ],
    ids=["bf16_odd", "fp32"],
)
def test_points_are_products_of_hopper_s_form(inputs, tmp_path):
    """Each image is multiplied by the same weights."""
    plan = match(trace_function(F.conv2d, inputs))
    assert not any(obstacles(plan.problem, SM90))
    check(F.conv2d, inputs, tmp_path, plan, "sm_90a", proposals(plan.problem, SM90)[0])


NO_IMAGE = {
    "product": (lambda x, w: F.relu(F.conv2d(x, w, padding=1)), (0, 32, 8, 8), (32, 32, 3, 3)),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), (0, 32, 8, 8), (32, 16, 3, 3)),
    "points": (F.conv2d, (0, 64, 8, 8), (64, 64, 1, 1)),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=6), (0, 6, 8, 8), (6, 1, 3, 3)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("written_for", [0, 2])
@pytest.mark.parametrize("name", NO_IMAGE)
def test_a_batch_without_images(name, written_for, tmp_path):
    function, shape, kernel_shape = NO_IMAGE[name]
    inputs = image(*shape), weights(*kernel_shape)
    plan = match(trace_function(function, (image(written_for, *shape[1:]), inputs[1])))
    check(function, inputs, tmp_path, plan, "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_more_results(name, tmp_path):
    check(*SLOW_CASES[name], tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EVERY)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = EVERY[name]
    (ours,), (theirs,) = interpret(trace_function(function, inputs), list(inputs)), exactly(function, inputs)
    tolerance = 1e-9 if theirs.dtype == F64 else 2e-2 if theirs.dtype in (BF16, F16) else 1e-5
    torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=tolerance, atol=tolerance * 10)


PATCHES = {  # a convolution whose windows divide the image, its inputs, and an image of another size
    "embedding": (
        lambda x, w, b: F.gelu(F.conv2d(x, w, b, stride=16)).flatten(2).transpose(1, 2),
        (image(2, 3, 32, 32, dtype=F16), weights(64, 3, 16, 16, dtype=F16) / 16, normal(64, dtype=F16)),
        image(1, 3, 16, 48, dtype=F16),
    ),
    "groups": (
        lambda x, w: F.conv1d(x, w, stride=32, groups=2).relu(),
        (image(2, 8, 640, dtype=F16), weights(128, 4, 32, dtype=F16) / 16),
        image(1, 8, 96, dtype=F16),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["embedding", "groups"])
def test_windows_that_share_nothing_are_stored_side_by_side(name, tmp_path):
    function, inputs, other = PATCHES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a", free_sizes=True)
    assert [launch.plan.pattern for launch in plan.launches] == ["elementwise", "contraction"]
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        for given in (inputs, (other, *inputs[1:])):
            (expected,) = exactly(function, given)
            torch.testing.assert_close(kernel_fn(*map(move, given)).cpu(), expected, rtol=2e-3, atol=4e-3)
        with pytest.raises(ValueError, match="this kernel takes multiples of"):
            kernel_fn(*map(move, (other[..., :-1], *inputs[1:])))


def test_as_many_channels_out_as_in_need_not_stay_equal():
    """The sizes grow apart while traced, to where the bias has too few elements: PyTorch takes it without values."""
    inputs = image(2, 24, 5, 6), weights(24, 24, 3, 3), normal(24)
    graph = trace_function(lambda x, w, b: F.conv2d(x, w, b, padding=1), inputs)
    assert {equal.places for equal in graph.equal} == {((0, 1), (1, 1)), ((1, 0), (2, 0))}


def test_windows_that_are_points_are_the_image_itself():
    assert isinstance(match(trace_function(*POINTS)).problem.b, Matrix)
    assert isinstance(match(trace_function(*SLOW_CASES["stride_of_points"])).problem.b, Seen)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding", "dilation"), [(9, 3, 1, 0, 1), (10, 4, 3, 2, 2), (7, 2, 2, 1, 3)]
)
def test_the_number_of_positions(size, taps, stride, padding, dilation, transposed):
    function = F.conv_transpose1d if transposed else F.conv1d
    inputs = image(1, 1, size), weights(1, 1, taps)
    graph = trace_function(lambda x, w: function(x, w, stride=stride, padding=padding, dilation=dilation), inputs)
    (windows,) = (node for node in graph.nodes() if node.op == "windows")
    expected = function(*inputs, stride=stride, padding=padding, dilation=dilation).shape[-1]
    law = Windows.of(windows).law(0)
    assert law.of(size) == eval(law.size_code(str(size))) == expected == windows.shape[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSPOSED)
def test_weights_of_a_transposed_convolution_are_rearranged_by_a_launch_of_its_own(name, tmp_path):
    function, inputs = TRANSPOSED[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_80")
    assert [launch.plan.pattern for launch in plan.launches] == ["elementwise", "contraction"]
    check(function, inputs, tmp_path, plan)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_places_between_strides_are_multiplied_with_nothing(dtype, tmp_path):
    """An infinite weight gives infinities where it meets an element, and NaN nowhere else."""
    w = weights(8, 8, 3, 3).abs()
    w[:4, :, 1] = -math.inf
    function, inputs = TRANSPOSED_WITH_BIAS, (image(1, 8, 5, 6).abs().to(dtype), w.to(dtype), normal(8).to(dtype))
    plan = plan_kernel(trace_function(function, inputs), "sm_80")
    with emulated_device("sm_80"):
        ours = load(plan.render(plan.configurations("sm_80")[0]), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    theirs = function(*inputs)
    assert theirs.isinf().any() and theirs.isfinite().any() and not theirs.isnan().any()
    torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_a_small_network_is_a_launch_for_each_layer(tmp_path):
    def network(x, first, second, weight):
        x = F.relu(F.conv2d(x, first, padding=1))
        x = x + F.gelu(F.conv2d(x, second, padding=1))
        return F.linear(x.flatten(1), weight)

    inputs = image(2, 3, 6, 6), weights(4, 3, 3, 3), weights(4, 4, 3, 3), weights(5, 144)
    plan = plan_kernel(trace_function(network, inputs), "sm_80")
    assert [launch.plan.pattern for launch in plan.launches] == ["windows", "windows", "contraction"]
    check(network, inputs, tmp_path, plan)

"""Backward passes of convolutions: gradients of image, weights and bias, against PyTorch's in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp

from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.graph.attributes import Contraction
from cutesmith.patterns.graph.nodes import nodes_of
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import check_product, exactly, normal

BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64


def backward(function):
    """The gradients of what the function is given before its last argument, which is that of its result."""
    return lambda *given: vjp(function, *given[:-1])[1](given[-1])


def case(function, *shapes, dtype=torch.float32, layout=torch.contiguous_format):
    """The backward pass of a function, and its inputs."""
    inputs = [normal(*shape, dtype=F64, seed=seed) for seed, shape in enumerate(shapes)]
    inputs[0] = inputs[0].to(memory_format=layout)
    inputs.append(normal(*function(*inputs).shape, dtype=F64, seed=9))
    return backward(function), tuple(each.to(dtype) for each in inputs)


PLAIN = case(lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 8, 5, 6), (8, 8, 3, 3), (8,), dtype=BF16)
EVERY = {
    "strided": case(lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), (2, 4, 8, 7), (6, 4, 3, 3), (6,)),
    "dilated": case(lambda x, w: F.conv2d(x, w, dilation=(2, 1), padding=(0, 2)), (2, 3, 8, 7), (4, 3, 3, 2)),
    "stride_of_one_dimension": case(lambda x, w: F.conv2d(x, w, stride=(1, 3)), (2, 3, 6, 8), (4, 3, 2, 3)),
    "points": case(lambda x, w: F.conv2d(x, w), (2, 8, 4, 4), (6, 8, 1, 1)),
    "strided_points": case(lambda x, w: F.conv2d(x, w, stride=2), (2, 8, 5, 4), (6, 8, 1, 1)),
    "groups": case(lambda x, w: F.conv2d(x, w, padding=1, groups=2), (2, 4, 5, 6), (6, 2, 3, 3)),
    "depthwise": case(lambda x, w: F.conv2d(x, w, padding=1, groups=5), (2, 5, 6, 6), (5, 1, 3, 3)),
    "strided_depthwise": case(lambda x, w: F.conv2d(x, w, padding=1, stride=2, groups=4), (2, 4, 6, 7), (4, 1, 3, 3)),
    "dilated_depthwise": case(
        lambda x, w: F.conv2d(x, w, padding=(2, 3), dilation=(2, 1), groups=3), (2, 3, 7, 8), (3, 1, 3, 5)
    ),
    "depthwise_volume": case(
        lambda x, w: F.conv3d(x, w, padding=(1, 0, 1), groups=2), (2, 2, 4, 5, 6), (2, 1, 3, 2, 3)
    ),
    "depthwise_few_taps": case(lambda x, w: F.conv2d(x, w, stride=(1, 2), groups=3), (2, 3, 5, 6), (3, 1, 2, 3)),
    "half_depthwise": case(lambda x, w: F.conv2d(x, w, padding=3, groups=3), (2, 3, 6, 8), (3, 1, 7, 7), dtype=BF16),
    "depthwise_far_outside": case(lambda x, w: F.conv1d(x, w, padding=4, groups=3), (2, 3, 9), (3, 1, 3)),
    "causal": case(lambda x, w: F.silu(F.conv1d(x, w, padding=3, groups=4)[..., :-3]), (2, 4, 16), (4, 1, 4)),
    "volume": case(lambda x, w: F.conv3d(x, w, padding=(1, 0, 1)), (1, 3, 3, 4, 5), (4, 3, 2, 2, 3)),
    "transposed": case(
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1), (2, 4, 4, 5), (4, 3, 3, 3)
    ),
    "transposed_with_positions_of_no_element": case(
        lambda x, w: F.conv_transpose1d(x, w, stride=1, dilation=3, output_padding=2), (2, 3, 6), (3, 2, 2)
    ),
    "transposed_depthwise": case(lambda x, w: F.conv_transpose2d(x, w, groups=3), (2, 3, 5, 4), (3, 1, 3, 3)),
    "channels_last": case(
        lambda x, w: F.conv2d(x, w, padding=1), (2, 8, 4, 5), (4, 8, 3, 3), layout=torch.channels_last
    ),
    "fp16": case(lambda x, w: F.conv2d(x, w, padding=1), (2, 8, 5, 6), (8, 8, 3, 3), dtype=F16),
    "half_channels_last": case(
        lambda x, w: F.conv2d(x, w, padding=1), (2, 8, 4, 5), (8, 8, 3, 3), dtype=BF16, layout=torch.channels_last
    ),
    "half_groups": case(lambda x, w: F.conv2d(x, w, padding=1, groups=2), (2, 16, 5, 6), (16, 8, 3, 3), dtype=BF16),
    "half_volume": case(lambda x, w: F.conv3d(x, w, padding=1), (1, 8, 3, 4, 5), (8, 8, 2, 2, 3), dtype=BF16),
    "half_transposed": case(lambda x, w: F.conv_transpose2d(x, w), (2, 8, 4, 5), (8, 8, 3, 3), dtype=BF16),
}
SLOW = (
    *("strided", "groups", "depthwise", "strided_depthwise", "causal", "volume", "transposed", "channels_last", "fp16"),
    *("half_channels_last", "half_groups", "half_volume", "half_transposed", "half_depthwise", "dilated_depthwise"),
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", EVERY)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = EVERY[name]
    exact = [each.double() for each in inputs]
    graph = trace_function(function, exact)
    for ours, theirs in zip(interpret(graph, exact), function(*exact), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def check(function, inputs, folder, arch="sm_90a"):
    plan = plan_kernel(trace_function(function, inputs), arch)
    check_product(plan, plan.configurations(arch)[0], function, inputs, folder, arch)
    return plan


@pytest.mark.slow
def test_gradients_of_image_weights_and_bias(tmp_path):
    check(*PLAIN, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_gradients(name, tmp_path):
    check(*EVERY[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_gradients_on_other_gpus(arch, tmp_path):
    check(*PLAIN, tmp_path, arch)


def test_both_products_read_one_copy_of_the_gradient():
    products = [node for node in trace_function(*PLAIN).nodes() if node.op == "contract"]
    copies = [{id(each.inputs[0]) for each in nodes_of((node,)) if each.op == "stored"} for node in products]
    assert len(copies) == 2 and len(set.intersection(*copies)) == 1


def weights_alone(channels, images, size):
    """The gradient of 3 x 3 weights: launches and the product among them."""
    function, inputs = case(
        lambda w, x: F.conv2d(x, w, padding=1), (channels, channels, 3, 3), (images, channels, size, size), dtype=BF16
    )
    return lambda *given: function(*given)[0], inputs


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "product"), [((64, 2, 8), (3, 64, 192)), ((16, 4, 32), (8, 3, 16, 48))])
def test_the_taps_of_a_line_are_one_factor_of_overlapping_rows(sizes, product, tmp_path):
    """A long sum over positions is cut into parts, which a launch adds up."""
    plan = check(*weights_alone(*sizes), tmp_path)
    launches = [launch.plan for launch in plan.launches]
    (found,) = (launch for launch in launches if launch.pattern == "contraction")
    assert found.graph.outputs[0].shape == product
    assert isinstance(found.configurations("sm_90a")[0], HopperConfiguration)


@pytest.mark.slow
@pytest.mark.parametrize(("taps", "products"), [((3, 3), 1), ((2, 3), 0)])
def test_many_taps_of_a_channel_are_diagonals_of_one_product(taps, products):
    function, inputs = case(lambda x, w: F.conv2d(x, w, groups=3), (2, 3, 6, 8), (3, 1, *taps), dtype=BF16)
    graph = trace_function(lambda *given: function(*given)[1], inputs)
    assert len([node for node in graph.nodes() if node.op == "contract"]) == products


@pytest.mark.slow
def test_many_parts_of_a_sum_are_added_up(tmp_path):
    function, inputs = case(lambda w, x: F.conv1d(x, w, padding=1), (16, 16, 3), (5, 16, 2302), dtype=BF16)
    plan = check(lambda *given: function(*given)[0], inputs, tmp_path)
    assert [x.plan.graph.outputs[0].shape for x in plan.launches if x.plan.pattern == "contraction"] == [(22, 16, 48)]


@pytest.mark.slow
def test_a_long_sum_is_cut_into_as_many_parts_as_a_gpu_has_multiprocessors():
    """132 tiles of 128 x 192, of which three are the result's; the sum has 64 places more for that, zeros."""
    (found,) = (p for p in _launches(*weights_alone(128, 16, 64)) if p.pattern == "contraction")
    assert found.graph.outputs[0].shape == (22, 3, 128, 384)


def _launches(function, inputs):
    return [launch.plan for launch in plan_kernel(trace_function(function, inputs), "sm_90a").launches]


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_gradients_that_are_not_wanted_cost_nothing(wanted):
    """A launch for what is wanted; products of the others are in no kernel."""

    def one(x, w, b, grad):
        mask = [place == wanted for place in range(3)]
        given = [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        return torch.ops.aten.convolution_backward(grad, x, w, *given, mask)[wanted]

    graph = trace_function(one, PLAIN[1])
    assert len([node for node in graph.nodes() if node.op == "contract"]) == (wanted < 2)
    (ours,), theirs = interpret(graph, list(PLAIN[1])), exactly(lambda *given: PLAIN[0](*given)[wanted], PLAIN[1])[0]
    torch.testing.assert_close(ours.to(BF16), theirs, rtol=2e-2, atol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [True, False])
def test_float32_may_round_where_pytorch_s_flag_for_convolutions_allows_it(allowed, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    products = [node for node in trace_function(*EVERY["groups"]).nodes() if node.op == "contract"]
    assert [Contraction.of(product).tf32 for product in products] == [allowed] * 2

"""Pooling and convolutions of few channels on the emulated GPU, and their graphs, against float64."""

from __future__ import annotations

import math
import re

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.windows.plan import match
from cutesmith.recording.open_session import session
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, exactly, first_kernel, like, load, move, normal, traced

BF16, F64 = torch.bfloat16, torch.float64
LINE, IMAGE, VOLUME = normal(2, 3, 50), normal(2, 3, 11, 13), normal(1, 2, 7, 8, 9)
EVEN = normal(2, 3, 8, 16)
A_CHANNEL = normal(3, 1, 1)
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
MANY = normal(2, 16, 9, 10).to(memory_format=LAST)


def special() -> torch.Tensor:
    """Ties, two NaN in one window, and a channel of -inf."""
    x = torch.randint(-2, 3, (2, 3, 9, 10), generator=torch.Generator().manual_seed(0)).float()
    x[0, 0, 3, 3] = x[0, 0, 4, 4] = math.nan
    x[1, 1] = -math.inf
    return x


def special_channels() -> torch.Tensor:
    """Those images with 12 channels, which lie next to each other: vectors of 4 of them."""
    return torch.cat([special()] * 4, 1).to(memory_format=LAST)


def weights(*shape, dtype=torch.float32):
    return normal(*shape, dtype=dtype, seed=1)


CASES = {
    "max in vectors": (lambda x: F.max_pool2d(x, 2), (EVEN,)),
    "dilated": (lambda x: F.max_pool1d(x, 8, 1, 4, 3), (LINE,)),
    "places": (lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), (special(),)),
    "places of windows that see nothing": (
        lambda x: F.max_pool3d(x, 2, 1, 1, 3, return_indices=True),
        (normal(1, 2, 2, 4, 3),),
    ),
    "mean of what is inside": (lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, False), (IMAGE,)),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), (IMAGE,)),
    "work on both sides": (
        lambda x, scale, shift: F.relu(F.max_pool2d(F.relu(x * scale + shift), 3, 2, 1) - 0.5),
        (EVEN.bfloat16(), A_CHANNEL.bfloat16(), A_CHANNEL.bfloat16()),
    ),
    "interpolated": (
        lambda x, b: F.relu(F.interpolate(x, size=(5, 30), mode="bilinear", align_corners=True) + b),
        (IMAGE, A_CHANNEL),
    ),
    "depthwise, channels last": (
        lambda x, w: F.gelu(F.conv2d(x, w, padding=3, groups=40)),
        (normal(2, 40, 6, 11, dtype=BF16).to(memory_format=torch.channels_last), weights(40, 1, 7, 7, dtype=BF16)),
    ),
    "vectors of channels": (lambda x: F.max_pool2d(x, 3, 2, 1), (MANY.bfloat16(),)),
    "bilinear by two": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (EVEN,)),
    "shares in vectors": (lambda x: F.adaptive_avg_pool2d(x, 2), (EVEN.bfloat16(),)),
    "depthwise": (
        lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1, groups=3)),
        (IMAGE, weights(3, 1, 3, 3), normal(3)),
    ),
}
SLOW_CASES = {
    "max": (lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "volume": (lambda x: F.max_pool3d(x, 3, 2, 1, 3), (normal(1, 2, 11, 12, 13),)),
    "places in a volume": (lambda x: F.max_pool3d(x, 2, 2, return_indices=True), (VOLUME,)),
    "places of a line": (lambda x: F.max_pool1d(x, 3, 2, 1, 1, True, return_indices=True), (LINE,)),
    "places in a line of windows that see nothing": (
        lambda x: F.max_pool1d(x, 2, 1, 1, 3, return_indices=True),
        (normal(2, 3, 2),),
    ),
    "places of dilated windows": (
        lambda x: F.max_pool1d(x, 3, 2, 1, 4, True, return_indices=True),
        (normal(2, 3, 8),),
    ),
    "places in channels of windows that see nothing": (
        lambda x: F.max_pool2d(x, 2, 1, 1, (5, 4), return_indices=True),
        (normal(2, 16, 4, 5).to(memory_format=LAST),),
    ),
    "partial windows": (lambda x: F.max_pool2d(x, 3, 2, 1, 1, True), (IMAGE,)),
    "mean of a line": (lambda x: F.avg_pool1d(x, 8, 1, 4), (LINE,)),
    "mean with padding": (lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, True), (IMAGE,)),
    "divisor": (lambda x: F.avg_pool2d(x, 2, 2, 0, True, True, 3), (IMAGE,)),
    "mean of a volume": (lambda x: F.avg_pool3d(x, 3, 2, 1), (VOLUME,)),
    "mean of many": (lambda x: F.avg_pool2d(x, 11), (normal(1, 2, 24, 50),)),
    "lp": (lambda x: F.lp_pool2d(x, 2, 2), (IMAGE,)),
    "adaptive line": (lambda x: F.adaptive_avg_pool1d(x, 7), (LINE,)),
    "adaptive volume": (lambda x: F.adaptive_avg_pool3d(x, (3, 2, 4)), (VOLUME,)),
    "adaptive places": (lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), (special(),)),
    "nearest": (lambda x: F.interpolate(x, size=(7, 30)), (IMAGE,)),
    "nearest by a scale": (lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest-exact"), (IMAGE,)),
    "nearest in a volume": (lambda x: F.interpolate(x, scale_factor=2), (VOLUME,)),
    "linear": (lambda x: F.interpolate(x, size=33, mode="linear"), (LINE,)),
    "bilinear bf16": (lambda x: F.interpolate(x, scale_factor=(1.5, 0.7), mode="bilinear"), (IMAGE.bfloat16(),)),
    "bilinear by powers of two": (lambda x: F.interpolate(x, scale_factor=(4, 0.5), mode="bilinear"), (EVEN,)),
    "bicubic by two": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (IMAGE.double(),)),
    "trilinear": (lambda x: F.interpolate(x, size=(5, 9, 20), mode="trilinear"), (VOLUME,)),
    "bicubic": (lambda x: F.interpolate(x, size=(5, 30), mode="bicubic"), (IMAGE,)),
    "bicubic of float64": (
        lambda x: F.interpolate(x, size=(20, 30), mode="bicubic", align_corners=True),
        (IMAGE.double(),),
    ),
    "bilinear by two, bf16": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE.bfloat16(),)),
    "bilinear by 0.8": (lambda x: F.interpolate(x, scale_factor=0.8, mode="bilinear"), (normal(2, 3, 20, 25),)),
    "trilinear by two": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (VOLUME,)),
    "linear by two": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (LINE,)),
    "nearest by two": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
    "nearest of every second": (lambda x: F.interpolate(x, scale_factor=0.5, mode="nearest-exact"), (IMAGE,)),
    "bilinear by two beside work": (
        lambda x, b, r: F.relu(F.interpolate(x * b, scale_factor=2, mode="bilinear") + b) * r,
        (IMAGE, A_CHANNEL, normal(22, 26)),
    ),
    "bilinear by two of coordinates": (
        lambda x: (
            F.interpolate(x + torch.arange(16, device=x.device), scale_factor=2, mode="bilinear")
            * torch.arange(16, device=x.device)[:, None]
        ),
        (EVEN,),
    ),
    "shares of whole chunks and places": (
        lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True),
        (normal(1, 2, 8, 32, dtype=BF16),),
    ),
    "shares beside work": (
        lambda x, b, r: F.relu(F.adaptive_avg_pool2d(x * b + r, (4, 7)) + b),
        (EVEN.bfloat16(), A_CHANNEL.bfloat16(), normal(16, dtype=BF16)),
    ),
    "places in vectors of channels": (lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), (special_channels(),)),
    "dilated and partial, in channels": (
        lambda x: F.max_pool2d(x, 3, 2, 1, 2, True),
        (MANY[:, :12].half().contiguous(memory_format=LAST),),
    ),
    "as many channels as no vector": (lambda x: F.max_pool2d(x, 2), (MANY[:, :13].contiguous(memory_format=LAST),)),
    "a volume of channels": (lambda x: F.avg_pool3d(x, 2, 2, 1), (normal(1, 12, 5, 6, 7).to(memory_format=LAST_3D),)),
    "mean of what is inside, in channels": (lambda x: F.avg_pool2d(x, (3, 2), 2, 1, True, False), (MANY,)),
    "lp in channels": (lambda x: F.lp_pool2d(x, 2, 2), (MANY,)),
    "shares in channels": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), (MANY,)),
    "bicubic in channels": (lambda x: F.interpolate(x, size=(5, 13), mode="bicubic"), (MANY,)),
    "work on both sides, in channels": (
        lambda x, c, r: F.relu(F.max_pool2d(F.relu(x * c), 2) - 0.5) * c + r,
        (MANY, normal(16, 1, 1), normal(4, 5)),
    ),
    "coordinates, in channels": (
        lambda x: (
            F.max_pool2d(x * torch.arange(16, device=x.device)[:, None, None], 2) + torch.arange(5, device=x.device)
        ),
        (MANY,),
    ),
    "other operands": (lambda x, b, r: F.max_pool2d(x, 2) * b + r, (IMAGE, A_CHANNEL, normal(2, 3, 5, 6))),
    "float64": (lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE.double(),)),
    "integers": (lambda x: F.max_pool2d(x, 3, 2, 1), ((10 * IMAGE).int(),)),
    "long windows": (lambda x: F.max_pool2d(x, (3, 100), (1, 50), (0, 10)), (normal(1, 2, 5, 333),)),
    "mean of long windows": (lambda x: F.avg_pool1d(x, 100, 50, 10), (normal(1, 2, 333),)),
    "no batch": (lambda x: F.max_pool2d(x, 2), (IMAGE[0],)),
    "channels last": (lambda x: F.max_pool2d(x, 2), (IMAGE.to(memory_format=torch.channels_last),)),
    "channels last and places": (
        lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True),
        (special().to(memory_format=torch.channels_last),),
    ),
    "channels last without a batch": (
        lambda x: F.max_pool2d(x, 2),
        (IMAGE[0].permute(1, 2, 0).clone().permute(2, 0, 1),),
    ),
    "two results a channel, channels last": (
        lambda x, w: F.conv2d(x, w, groups=3, padding=1),
        (IMAGE.to(memory_format=torch.channels_last), weights(6, 1, 3, 3)),
    ),
    "transposed": (lambda x: F.avg_pool2d(x.transpose(2, 3), 2), (IMAGE,)),
    "coordinates": (
        lambda x: F.max_pool2d(x + torch.arange(x.shape[-1], device=x.device), 2) * torch.arange(6, device=x.device),
        (IMAGE,),
    ),
    "weights that channels share": (
        lambda x, w: F.conv2d(x, w.expand(3, 1, 3, 3), groups=3, padding=1),
        (IMAGE, weights(1, 1, 3, 3)),
    ),
    "two results a channel": (lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=3), (IMAGE, weights(6, 1, 3, 3))),
    "depthwise bf16": (
        lambda x, w: F.gelu(F.conv2d(x, w, groups=3)),
        (normal(2, 3, 12, 20, dtype=BF16), weights(3, 1, 7, 3, dtype=BF16)),
    ),
    "depthwise dilated": (lambda x, w: F.conv2d(x, w, dilation=2, groups=3) + 1, (IMAGE, weights(3, 1, 3, 3))),
    "depthwise volume": (lambda x, w: F.conv3d(x, w, groups=2, padding=1), (VOLUME, weights(2, 1, 3, 3, 3))),
    "few channels and a residual": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1) * 2 + x,
        (IMAGE, weights(3, 3, 3, 3), normal(3)),
    ),
    "float64 depthwise": (lambda x, w: F.conv2d(x, w, groups=3), (IMAGE.double(), weights(3, 1, 3, 3, dtype=F64))),
}


def check(function, inputs, folder, every=False):
    plan = match(traced(function, inputs))
    for configuration in plan.configurations()[: None if every else 1]:
        with emulated_device("sm_90a"):
            kernel = load(plan.render(configuration), folder)
            outs = [out.cpu() for out in as_list(kernel.kernel_fn(*map(move, inputs)))]
        for ours, theirs in zip(outs, exactly(function, inputs), strict=True):
            close(2e-6, of_largest=True)(ours, theirs)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    check(*CASES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_more_results(name, tmp_path):
    check(*SLOW_CASES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["places", "depthwise", "mean of what is inside", "bilinear by two", "vectors of channels"]
)
def test_every_configuration_is_right(name, tmp_path):
    check(*CASES[name], tmp_path, every=True)


SLOW_GRAPHS = {"bicubic", "bicubic of float64", "bicubic in channels"}  # "bicubic by two" stays


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW_GRAPHS else ()) for n in (*CASES, *SLOW_CASES)]
)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = (CASES | SLOW_CASES)[name]
    graph = traced(function, inputs)
    for ours, theirs in zip(interpret(graph, list(inputs)), exactly(function, inputs), strict=True):
        close(1e-5, of_largest=True)(ours.to(theirs.dtype), theirs)


OTHER_SIZES = {
    "depthwise": ((1, 3, 1, 2), (2, 3, 6, 16)),
    "vectors of channels": ((1, 20, 7, 8), (2, 13, 5, 5), (0, 16, 5, 5)),
    "bilinear by two": ((1, 2, 7, 13), (1, 1, 1, 1), (0, 3, 4, 8)),
    "shares in vectors": ((1, 3, 4, 32), (1, 3, 7, 19), (1, 2, 1, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_SIZES)
def test_one_kernel_serves_other_sizes(name, tmp_path):
    function, (image, *others) = CASES[name]
    if name == "depthwise":
        others[1] = torch.zeros_like(others[1])
    plan = match(traced(function, (image, *others)))
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
        for shape in OTHER_SIZES[name]:
            inputs = normal(*shape, dtype=image.dtype), *others
            (expected,) = exactly(function, inputs)
            close(2e-6, of_largest=True)(kernel_fn(*map(move, inputs)).cpu(), expected)


@pytest.mark.slow
def test_sizes_that_are_multiples_are_a_scale_where_no_other_image_is_named(tmp_path):
    function = lambda x: F.interpolate(x, size=(16, 32), mode="bilinear")  # noqa: E731
    by_scale = plan_kernel(traced(CASES["bilinear by two"][0], (EVEN,)), "sm_90a")
    plan, free = (plan_kernel(trace_function(function, (EVEN,)), "sm_90a", free_sizes=free) for free in (False, True))
    assert plan.graph.outputs[0].attrs == by_scale.graph.outputs[0].attrs
    other = normal(2, 3, 8, 20)
    with emulated_device("sm_90a"):
        kernel_fn, kernel_of_any = (first_kernel(each, tmp_path).kernel_fn for each in (plan, free))
        close(2e-6, of_largest=True)(kernel_fn(move(EVEN)).cpu(), *exactly(function, (EVEN,)))
        close(2e-6, of_largest=True)(kernel_of_any(move(other)).cpu(), *exactly(function, (other,)))
        with pytest.raises(ValueError, match="this kernel was written for"):
            kernel_fn(move(other))


@pytest.mark.slow
def test_results_have_the_layout_of_pytorch_or_are_contiguous(tmp_path):
    function, (image,) = CASES["vectors of channels"]
    plan = match(traced(function, (image,)))
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
        for x in (image.contiguous(), image.transpose(2, 3), image[:, :8], image[:, :, 2:3, 2:3].contiguous()):
            expected = function(x)
            ours = kernel_fn(move(x)).cpu()
            assert torch.equal(ours, expected)
            assert ours.stride() in (expected.stride(), expected.contiguous().stride())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", [0, 1, 15])
def test_nan_reaches_what_pytorch_weighs_with_zero(place, tmp_path):
    """The first result along a dimension is seen through two elements, and the second weighs nothing."""
    function, (image,) = CASES["bilinear by two"]
    x = image.clone()
    x[0, 0, place // 2, place], x[1, 2, 1, 1] = math.nan, math.inf
    check(function, (x,), tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["vectors of channels", "bilinear by two", "shares in vectors"])
def test_an_image_is_read_in_vectors(name, tmp_path):
    function, inputs = CASES[name]
    plan = match(traced(function, inputs))
    with session("sm_90a") as recorded:
        out = first_kernel(plan, tmp_path).kernel_fn(*map(like, inputs))
    (launch,) = recorded.launches
    loads = re.findall(r"ld\.global\S*", launch.module.ptx)
    assert any(".v2" in load or ".v4" in load for load in loads)
    assert out.stride() == function(*inputs).stride()


def test_other_taps_are_refused(tmp_path):
    plan = match(trace_function(lambda x, w: F.conv2d(x, w, groups=3), (IMAGE, weights(3, 1, 3, 3))))
    kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
    with pytest.raises(ValueError, match="this kernel was written for"):
        kernel_fn(IMAGE, weights(3, 1, 3, 2))


@pytest.mark.parametrize(("groups", "channels"), [(3, 1), (1, 3)])
def test_an_image_of_other_channels_than_the_weights_is_refused(groups, channels, tmp_path):
    """The weights' channels would be read beyond the image's end."""
    w = weights(3, channels, 3, 3)
    plan = match(trace_function(lambda x, w: F.conv2d(x, w, groups=groups), (IMAGE, w)))
    with emulated_device("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
        with pytest.raises(ValueError, match=r"equal sizes: x.shape\[1\], w.shape\[1\]"):
            kernel_fn(move(IMAGE[:, :2].contiguous()), move(w))


def test_convolutions_of_many_channels_are_products():
    graph = trace_function(lambda x, w: F.conv2d(x, w), (normal(1, 8, 6, 6), weights(8, 8, 3, 3)))
    with pytest.raises(UnmatchedError, match="many channels"):
        match(graph)
    assert plan_kernel(graph, "sm_90a").pattern == "contraction"


@pytest.mark.slow
def test_pooling_between_layers_is_a_launch_of_its_own(tmp_path):
    def network(x, w, v):
        return F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).flatten(1) @ v

    inputs = normal(2, 8, 8, 8), weights(8, 8, 3, 3), weights(128, 5)
    plan = plan_kernel(trace_function(network, inputs), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["contraction", "windows", "contraction"]
    with emulated_device("sm_90a"):
        (ours,) = as_list(load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(*map(move, inputs)))
    close(5e-6, of_largest=True)(ours.cpu(), exactly(network, inputs)[0])


def test_neighbouring_threads_lie_along_what_is_contiguous():
    def first(function, *inputs):
        c = match(trace_function(function, inputs)).configurations()[0]
        return c.by_channels, c.in_channels

    x, w = IMAGE.to(memory_format=torch.channels_last), weights(3, 1, 3, 3)
    assert first(lambda x: F.max_pool2d(x, 2), x) == (True, True)
    assert first(lambda x: F.max_pool2d(x, 2).contiguous(), x) == (True, False)
    assert first(lambda x, w: F.conv2d(x, w, groups=3), x, w) == (True, False)
    assert first(lambda x: F.max_pool2d(x, 2), IMAGE) == (False, False)


@pytest.mark.slow
def test_as_many_outputs_a_thread_as_were_the_fastest_on_a_gpu():
    """The order that GPUs measured (evals/results/h100/table/memory; KernelBench's level 1, 45)."""

    def outputs(function, *shape, dtype=torch.float32):
        return match(trace_function(function, (torch.empty(shape, dtype=dtype),))).configurations()[0].outputs

    assert outputs(lambda x: F.max_pool2d(x, 3, 2, 1), 8, 64, 224, 224) == 2
    assert outputs(lambda x: F.max_pool3d(x, 3, 2, 1), 4, 8, 64, 128, 128) == 2
    assert outputs(lambda x: F.interpolate(x, size=256, mode="bilinear"), 8, 64, 128, 128) == 4
    assert outputs(lambda x: F.interpolate(x, size=256, mode="nearest"), 8, 64, 128, 128) == 4
    assert outputs(lambda x: F.adaptive_avg_pool2d(x, 7), 8, 1024, 56, 56, dtype=torch.bfloat16) <= 2
    assert outputs(lambda x: F.avg_pool2d(x, 11), 16, 64, 512, 512) == 1

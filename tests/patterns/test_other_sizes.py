"""Kernels whose views follow the sizes of the inputs: other inputs than the traced ones, against float64."""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from cutesmith.compiling.shares import NONE
from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.graph.attributes import Sized
from cutesmith.patterns.graph.nodes import views_of
from cutesmith.patterns.graph.size_laws import SizeLaw
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from tests.patterns.running import as_list, close, emulated, exactly, first_kernel, load, move, normal

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
    "pooled": (
        lambda x: F.max_pool2d(F.avg_pool2d(x * 2, 3, 2, 1).relu(), 2, ceil_mode=True).flatten(1),
        [[(2, 3, 9, 8)], [(1, 2, 6, 11)], [(3, 1, 7, 7)]],
    ),
    "strided": (
        lambda x, w: F.conv2d(F.pad(x, (1, 0, 2, 0)), w, stride=2).relu().mean((2, 3)),
        [[(2, 4, 8, 8), (8, 4, 3, 3)], [(1, 4, 9, 6), (8, 4, 3, 3)], [(3, 2, 7, 12), (5, 2, 3, 3)]],
    ),
    "halves": (
        lambda x, cosine: x.chunk(2, -1)[0] * cosine - x.chunk(2, -1)[1],
        [[(3, 4, 8), (4, 4)], [(2, 3, 6), (3, 1)], [(1, 5, 2), (1, 1)]],
    ),
    "gates": (
        lambda x, w, cell: (torch.tanh(x @ w.t()).chunk(4, 1)[3] * cell).cumsum(0),
        [[(3, 6), (32, 6), (3, 8)], [(2, 5), (12, 5), (2, 1)]],
    ),
    "rest": (
        lambda x, y, z: torch.cat((y, z), 1) * x + x.narrow(1, y.shape[1], z.shape[1]).mean(1, keepdim=True),
        [[(3, 8), (3, 4), (3, 4)], [(2, 7), (2, 3), (2, 4)]],
    ),
    "rolled": (lambda x: x.roll((2, -3), (0, 1)) * 2, [[(5, 6)], [(1, 2)], [(2, 1)], [(7, 4)]]),
    "stretched": (lambda x: (x * 2).expand(3, *x.shape) + x.shape[0], [[(4, 5)], [(7, 2)]]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_kernel_serves_other_sizes(name, tmp_path):
    function, shapes = CASES[name]
    with emulated_device("sm_80"):
        inputs = [[normal(*shape, seed=seed) for seed, shape in enumerate(each)] for each in shapes]
        plan = plan_kernel(trace_function(function, inputs[0]), "sm_80", free_sizes=True)
        kernel = first_kernel(plan, tmp_path)
        for given in inputs:
            found = as_list(kernel.kernel_fn(*map(move, given)))
            for ours, exact in zip(found, exactly(function, given), strict=True):
                assert ours.shape == exact.shape
                torch.testing.assert_close(ours.cpu(), exact, rtol=1e-5, atol=1e-5, check_dtype=False)


@pytest.mark.slow
def test_what_a_kernel_does_not_broadcast_it_refuses(tmp_path):
    function = lambda x, y: torch.cat((x[:, :4] * y, x[:, 4:] + y), 1)  # noqa: E731
    with emulated_device("sm_80"):
        kernel = first_kernel(plan_kernel(trace_function(function, [normal(3, 8), normal(3, 1)]), "sm_80"), tmp_path)
        for shape in ((5, 1), (1, 1)):
            x = normal(shape[0], 8)
            torch.testing.assert_close(
                kernel.kernel_fn(move(x), move(normal(*shape))).cpu(), function(x, normal(*shape))
            )
        with pytest.raises(ValueError, match=r"equal sizes: x.shape\[0\], y.shape\[0\] = \(5, 1\)"):
            kernel.kernel_fn(move(normal(5, 8)), move(normal(1, 1)))


@pytest.mark.parametrize(
    ("function", "shapes", "refused"),
    [
        (lambda x: x.squeeze() * 2, [(9, 30)], ["x.shape[0]", "x.shape[1]"]),
        (lambda x: x.squeeze(0) * 2, [(9, 30)], ["x.shape[0]"]),
        (lambda x, y: (x * y).squeeze(), [(9, 30)] * 2, ["x.shape[0] and y.shape[0]", "x.shape[1] and y.shape[1]"]),
        (lambda x, w: F.linear(x, w).squeeze(), [(3, 8), (5, 8)], ["x_in.shape[0]", "w.shape[0]"]),
        (lambda x: x.sum(1, keepdim=True).squeeze(1), [(9, 30)], []),
    ],
)
def test_a_size_of_one_that_gives_another_rank_is_refused(function, shapes, refused):
    plan = plan_kernel(trace_function(function, [normal(*shape) for shape in shapes]), "sm_90a")
    source = plan.render(plan.configurations("sm_90a")[0])
    told = [line.split("takes no ")[1].split(" of 1:")[0] for line in source.splitlines() if " of 1: the res" in line]
    assert sorted(told) == sorted(refused)


LIMITS = {  # a function, shapes that it is traced with, others that the kernel refuses, and such as it takes
    "a sum with what has another dimension of 1": (
        lambda x, y: x.squeeze() + y, [(4, 4)] * 2, [[(5, 1)] * 2], [[(5, 7)] * 2, [(1, 7)] * 2],
    ),
    "one element of a flat tensor": (lambda x: (x * 2).flatten().squeeze(), [(5, 3)], [[(1, 1)]], [[(1, 3)], [(7, 1)]]),
    "chunks": (lambda x: x.chunk(3, 1)[0] * 2, [(5, 6)], [[(5, 7)], [(5, 2)]], [[(4, 9)]]),
    "the second half": (lambda x: x[:, x.shape[1] // 2 :] * 2, [(5, 6)], [[(5, 7)], [(5, 1)]], [[(3, 8)]]),
    "parts of small matrices": (torch.linalg.inv, [(5, 2, 2)], [[(5, 1, 1)], [(5, 3, 3)]], [[(7, 2, 2)]]),
    "matrices of one number": (torch.linalg.inv, [(5, 1, 1)], [[(5, 3, 3)]], [[(7, 1, 1)]]),
    "columns counted from the last": (lambda x: x.flip(-1) * 2, [(5, 1)], [[(5, 3)]], [[(7, 1)]]),
    "a loop over one column": (
        lambda x: torch.stack([column * 2 for column in x.unbind(1)], 1), [(5, 1)], [[(5, 3)]], [[(7, 1)]],
    ),
    "a mean's divisor of 1": (lambda x: x / x.shape[1], [(5, 1)], [[(5, 3)]], [[(7, 1)]]),
    "one image of many groups": (
        lambda x, w: F.conv1d(F.pad(x, (3, 0)), w, groups=4), [(1, 4, 16), (4, 1, 4)], [[(3, 4, 16), (4, 1, 4)]],
        [[(1, 4, 21), (4, 1, 4)]],
    ),
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LIMITS)
def test_sizes_at_which_no_law_holds_are_refused(name, tmp_path):
    function, shapes, refused, taken = LIMITS[name]
    with emulated_device("sm_80"):
        graph = trace_function(function, [*itertools.starmap(normal, shapes)])
        kernel = first_kernel(plan_kernel(graph, "sm_80"), tmp_path)
        for each in (shapes, *taken):
            given = [*itertools.starmap(normal, each)]
            expected = function(*given)
            ours = kernel.kernel_fn(*map(move, given)).cpu()
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)
        for each in refused:
            with pytest.raises(ValueError, match="this kernel (takes|was written)"):
                kernel.kernel_fn(*map(move, itertools.starmap(normal, each)))


def test_squeezed_dimensions_of_other_sizes_are_served(tmp_path):
    function = lambda x: x.squeeze() * 2  # noqa: E731
    with emulated_device("sm_80"):
        kernel = first_kernel(plan_kernel(trace_function(function, [normal(9, 30)]), "sm_80"), tmp_path)
        given = normal(4, 7)
        torch.testing.assert_close(kernel.kernel_fn(move(given)).cpu(), function(given))
        with pytest.raises(ValueError, match=r"takes no x.shape\[0\] of 1"):
            kernel.kernel_fn(move(normal(1, 7)))


def padded_to_twice(x, y):
    """y up to twice the columns of x: cut where it has more."""
    more = 2 * x.shape[1] - y.shape[1]
    return F.pad(y, (0, more)) if more >= 0 else y[:, : 2 * x.shape[1]]


@pytest.mark.slow
def test_sizes_that_are_equal_by_chance_must_be_equal_again_where_the_function_is_another_without(tmp_path):
    function = lambda x, y: torch.cat((padded_to_twice(x, x), padded_to_twice(x, y)))  # noqa: E731
    graph = trace_function(function, [normal(3, 8), normal(3, 8, seed=1)])
    assert [each.places for each in graph.equal if not each.ones] == [((0, 1), (1, 1))]
    with emulated_device("sm_80"):
        kernel = first_kernel(plan_kernel(graph, "sm_80"), tmp_path)
        for columns in (8, 5):
            given = [normal(3, columns), normal(3, columns, seed=1)]
            torch.testing.assert_close(kernel.kernel_fn(*map(move, given)).cpu(), function(*given))
        with pytest.raises(ValueError, match=r"equal sizes: x.shape\[1\], y.shape\[1\] = \(8, 30\)"):
            kernel.kernel_fn(move(normal(3, 8)), move(normal(3, 30)))


@pytest.mark.slow
def test_rows_and_columns_of_a_square_weight_are_not_taken_for_one_size(tmp_path):
    function = lambda x, weight, scale: (x @ weight.t()) * scale  # noqa: E731
    half = functools.partial(normal, dtype=torch.bfloat16)
    with emulated_device("sm_90a"):
        graph = trace_function(function, [half(9, 16), half(16, 16), half(16)])
        kernel = first_kernel(plan_kernel(graph, "sm_90a"), tmp_path)
        given = [half(5, 16), half(1, 16), half(1)]  # one output
        torch.testing.assert_close(kernel.kernel_fn(*map(move, given)).cpu(), function(*given))
        with pytest.raises(ValueError, match=r"scale has shape \(1,\); it must fit \(5, 8\)"):
            kernel.kernel_fn(move(half(5, 16)), move(half(8, 16)), move(half(1)))


def test_a_number_without_dimensions_comes_back_as_one(tmp_path):
    function = lambda x: (x * 2).squeeze()  # noqa: E731
    with emulated_device("sm_80"):
        kernel = first_kernel(plan_kernel(trace_function(function, [normal(1, 1)]), "sm_80"), tmp_path)
        assert kernel.kernel_fn(move(normal(1, 1))).shape == ()


NETWORKS = {
    "stem": (
        lambda x, w, v: F.conv2d(F.max_pool2d(F.conv2d(x, w, None, 2, 3), 3, 2, 1).relu(), v, None, (2, 1)).mean(2),
        [(2, 3, 32, 32), (8, 3, 7, 7), (4, 8, 3, 3)], [(5, 3, 37, 51), (8, 3, 7, 7), (4, 8, 3, 3)],
    ),
    "square of one size": (  # (n - 1) // 2 + 1 is n / 2 in every trace
        lambda x, w: F.conv1d(x, w, stride=2, padding=1) * 2, [(2, 4, 32), (8, 4, 3)], [(2, 4, 33), (8, 4, 3)],
    ),
    "taps as many as channels": (
        lambda x, w: F.conv2d(x, w, padding=1) + 1, [(3, 3, 12, 12), (6, 3, 3, 3)], [(2, 3, 5, 9), (6, 3, 3, 3)],
    ),
    "up and down": (
        lambda x, w, v: F.interpolate(F.conv_transpose2d(F.conv2d(x, w, None, 2), v, None, 2), scale_factor=2) + len(x),
        [(5, 2, 16, 16), (4, 2, 4, 4), (4, 2, 2, 2)], [(3, 2, 15, 9), (4, 2, 4, 4), (4, 2, 2, 2)],
    ),
    "padded": (
        lambda x, w: F.conv1d(F.pad(x, (5, 0)), w, dilation=2, stride=3).transpose(1, 2).softmax(-1),
        [(2, 4, 20), (6, 4, 3)], [(3, 4, 31), (6, 4, 3)],
    ),
    "classified": (
        lambda x, w, v: F.linear(F.max_pool2d(F.conv2d(x, w, stride=2, padding=1).relu(), 3, 2).flatten(1), v),
        [(5, 3, 32, 32), (16, 3, 3, 3), (10, 784)], [(2, 3, 32, 32), (16, 3, 3, 3), (7, 784)],
    ),
    "half of the positions": (
        lambda x: F.avg_pool1d(x, 3, 2).view(x.shape[0], -1, 2) / F.avg_pool1d(x, 3, 2).shape[-1],
        [(2, 4, 17)], [(3, 6, 21)],
    ),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_laws_of_sizes_behind_windows_hold(name):
    """What is followed from one set of sizes are the numbers of a trace on another one."""
    function, shapes, others = NETWORKS[name]
    first, other = (trace_function(function, [normal(*shape) for shape in each]) for each in (shapes, others))
    assert all(dim >= 2 and index > 0 for index, dim in first.checked)  # the taps of weights
    compared = 0
    for node, same in zip(first.nodes(), other.nodes(), strict=True):
        for law, number in zip(_numbers(node), _numbers(same), strict=True):
            assert _value(law, others) == pytest.approx(_value(number, others), rel=1e-12), node.where
            compared += isinstance(law, SizeLaw) and bool(law.terms)
    assert compared or name == "classified"


def gated_convolution(x, mask, w, taps):
    """Convolution along the time of each channel, behind a gate and a mask: x [batch, time, channels]."""
    first, second = (x @ w.t()).chunk(2, -1)
    frames = first * torch.sigmoid(second) * mask.unsqueeze(-1)
    return F.conv1d(frames.mT, taps.unsqueeze(1), padding=taps.shape[1] // 2, groups=len(taps)).mT


@pytest.mark.slow
@pytest.mark.parametrize(("time", "channels"), [(16, 8), (16, 16)])
def test_time_and_channels_of_one_size_by_chance_are_told_apart(time, channels):
    """Here the rows of the weights are as many as the frames, or as half of them."""
    first, other = (trace_function(gated_convolution, _frames(*sizes)) for sizes in ((2, time, channels), (3, 7, 6)))
    shapes = [argument.shape for argument in other.arguments]
    for node, same in zip(first.nodes(), other.nodes(), strict=True):
        for law, number in zip(_numbers(node), _numbers(same), strict=True):
            assert _value(law, shapes) == _value(number, shapes), node.where


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_gated_convolution_along_time_takes_other_sizes(name, tmp_path):
    dtype = getattr(torch, name)
    graph = trace_function(gated_convolution, _frames(2, 16, 8, dtype))
    with emulated("sm_90a"):
        kernel = first_kernel(plan_kernel(graph, "sm_90a", free_sizes=True), tmp_path)
        for sizes in ((2, 16, 8), (3, 21, 6), (1, 5, 24), (2, 33, 9)):
            given = _frames(*sizes, dtype)
            close(1e-5, of_largest=True)(kernel.kernel_fn(*map(move, given)).cpu(), *exactly(gated_convolution, given))


def _frames(batch, time, channels, dtype=torch.float32):
    mask = torch.arange(time) < torch.tensor([[time - at] for at in range(batch)])
    shapes = (batch, time, channels), (2 * channels, channels), (channels, 5)
    x, w, taps = (normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes))
    return x, mask, w, taps


def _numbers(node):
    """The sizes in a node's views and in its shape, and the law of a number."""
    laws = [node.attrs.law] if isinstance(node.attrs, Sized) else []
    return [*(size for view in views_of(node) for size in view.sizes), *node.sizes, *laws]


def _value(size, shapes):
    return size.value(shapes) if isinstance(size, SizeLaw) else size


def test_sizes_without_a_law_are_held_and_the_others_free(tmp_path):
    def function(x):
        return x / math.log(x.shape[2]) + x.shape[1]

    graph = trace_function(function, [normal(2, 3, 5)])
    assert graph.held == {(0, 2)} and not graph.fixed_shapes
    with emulated_device("sm_80"):
        kernel = first_kernel(plan_kernel(graph, "sm_80"), tmp_path)
        for shape in ((2, 3, 5), (4, 7, 5)):
            x = normal(*shape)
            torch.testing.assert_close(kernel.kernel_fn(move(x)).cpu(), function(x))
        with pytest.raises(ValueError, match=r"x has shape \(2, 3, 6\); this kernel was written for \(\*, \*, 5\)"):
            kernel.kernel_fn(move(normal(2, 3, 6)))


def test_weights_that_are_computed_have_any_number_of_channels(tmp_path):
    function = lambda x, w: F.conv1d(x, w.float().flatten(1, 2) * 2, padding=1)  # noqa: E731
    graph = trace_function(function, [normal(2, 8, 16), normal(8, 4, 2, 3)])
    plan = plan_kernel(graph, "sm_80", free_sizes=True)
    source = plan.render(plan.configurations("sm_80")[0])
    assert source.count("was written for") == source.count("was written for (*, *, 2, 3)") == 1


def test_weights_of_other_taps_are_refused(tmp_path):
    function = lambda x, w: F.conv1d(x, w) * 2  # noqa: E731
    graph = trace_function(function, [normal(2, 8, 16), normal(8, 8, 3)])
    with emulated_device("sm_80"):
        kernel = first_kernel(plan_kernel(graph, "sm_80"), tmp_path)
        with pytest.raises(ValueError, match=r"w has shape \(8, 8, 5\); this kernel was written for \(\*, \*, 3\)"):
            kernel.kernel_fn(move(normal(2, 8, 16)), move(normal(8, 8, 5)))


def test_a_scale_follows_the_columns_of_heads_where_the_batch_has_the_same_size():
    graph = trace_function(F.scaled_dot_product_attention, [normal(16, 2, 5, 16, seed=seed) for seed in range(3)])
    laws = [Sized.of(node).law for node in graph.nodes() if node.op == "sized"]
    assert [(law.power, law.places) for law in laws] == [(-0.5, {(0, 3)})]


def test_sizes_that_cannot_grow_take_few_traces():
    traces = 0

    def block(x, expand, depth, shrink):
        nonlocal traces
        traces += 1
        return x + F.conv2d(F.conv2d(F.conv2d(x, expand), depth, padding=1, groups=24), shrink)

    shapes = [(2, 12, 10, 10), (24, 12, 1, 1), (24, 1, 3, 3), (12, 24, 1, 1)]
    graph = trace_function(block, [normal(*shape) for shape in shapes])
    assert not graph.fixed_shapes and graph.equal[0].places == ((0, 1), (1, 1), (3, 0))
    assert traces <= 45  # 52 where each way to grow begins with the sizes that hold it up


REFUSED = {  # a function, shapes that it is traced with, and others that PyTorch refuses: the sizes that differ last
    "k of a product": (torch.matmul, [(8, 32), (32, 24)], [(8, 32), (24, 24)], "32, 24"),
    "k behind a view": (lambda x, w: F.linear(x.flatten(1), w), [(2, 12, 1), (5, 12)], [(2, 15, 1), (5, 12)], "15, 12"),
    "k of one row": (torch.matmul, [(1, 32), (32, 24)], [(1, 32), (16, 24)], "32, 16"),
    "k of 1": (torch.matmul, [(8, 1), (1, 24)], [(8, 3), (5, 24)], "3, 5"),
    "k of a batch": (torch.matmul, [(4, 1, 8, 32), (3, 32, 24)], [(4, 1, 8, 32), (3, 16, 24)], "32, 16"),
    "matrices of a batch": (torch.bmm, [(4, 8, 32), (4, 32, 24)], [(1, 8, 32), (4, 32, 24)], "1, 4"),
    "a bias": (F.linear, [(8, 32), (24, 32), (24,)], [(8, 32), (24, 32), (20,)], r"\(20,\).*fit \(8, 24\)|24, 20"),
    "k behind other work": (
        lambda x, w: (x.relu() @ w).softmax(-1), [(8, 32), (32, 24)], [(8, 32), (24, 24)], "32, 24"
    ),
    "channels": (F.conv2d, [(2, 4, 9, 9), (8, 4, 3, 3)], [(2, 6, 9, 9), (8, 4, 3, 3)], "6, 4"),
    "channels of groups": (
        lambda x, w: F.conv1d(x, w, padding=1, groups=4), [(2, 4, 16), (4, 1, 3)], [(2, 5, 16), (5, 1, 3)], "5, 4"
    ),
    "keys and values": (
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v, [(2, 8, 32)] * 3, [(2, 8, 32), (2, 8, 32), (2, 4, 32)], "8, 4"
    ),
    "rows that are joined": (lambda x, y: torch.cat((x, y), 1), [(4, 5), (4, 3)], [(4, 5), (1, 3)], "4, 1"),
    "layers of a stack": (lambda x, y: torch.stack((x, y)), [(4, 5), (4, 5)], [(4, 5), (4, 6)], "5, 6"),
    "places of another size": (
        lambda x, y: x.gather(1, y.argsort(1)), [(4, 5), (4, 5)], [(4, 5), (6, 5)], "no y.*above x.*not 6 and 4"
    ),
    "sources of another size": (
        lambda x, y: x.index_add(0, y.argmax(1), y), [(4, 5), (3, 5)], [(4, 5), (3, 6)], "5, 6"
    ),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_pytorch_refuses_are_refused(name):
    function, shapes, refused, told = REFUSED[name]
    given, other = ([*itertools.starmap(normal, each)] for each in (shapes, refused))
    with pytest.raises((RuntimeError, IndexError)):
        function(*other)
    plan = plan_kernel(trace_function(function, given), "sm_90a")
    with session("sm_90a", share=NONE), tempfile.TemporaryDirectory() as folder:  # host code alone
        kernel = load(plan.render(plan.configurations("sm_90a")[0]), Path(folder))
        with pytest.raises(ValueError, match=told):
            kernel.kernel_fn(*map(move, other))


@pytest.mark.slow
def test_all_sizes_of_a_block_are_compared():
    """Eleven of one size, which are too many to try all sets of them."""

    def block(x, wq, wk, wv, wo, up, down, gain):
        h = F.rms_norm(x, gain.shape, gain)
        q, k, v = ((h @ w).unflatten(-1, (4, -1)).transpose(1, 2) for w in (wq, wk, wv))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape) @ wo
        return x + F.silu(x @ up) @ down

    shapes = [(2, 16, 32), *[(32, 32)] * 4, (32, 64), (64, 32), (32,)]
    graph = trace_function(block, [*itertools.starmap(normal, shapes)])
    whole = ((0, 2), (1, 0), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (6, 1), (7, 0))
    assert {each.places for each in graph.equal} == {whole, ((1, 1), (2, 1)), ((5, 1), (6, 0))}

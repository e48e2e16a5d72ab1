"""Convolutions of few channels over images whose channels are taps."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.cutting.cover import cut
from cutesmith.patterns.cutting.line_taps import with_taps_as_channels
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.cutting.sharing import with_shared_kernels
from cutesmith.patterns.match import AROUND_PRODUCTS, whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import close, emulated_hopper, exactly, load, move, normal

BF16 = torch.bfloat16


def conv(*more, rank=2):
    return lambda x, w, b: getattr(F, f"conv{rank}d")(x, w, b, *more)


CASES = {
    "volume": (conv(rank=3), [normal(2, 3, 5, 6, 8), normal(8, 3, 3, 3, 5, seed=1), normal(8, seed=2)]),
    "padded": (conv(1, 2), [normal(2, 3, 9, 8), normal(8, 3, 5, 5, seed=1), normal(8, seed=2)]),
    "strides": (conv((2, 3), (1, 4)), [normal(2, 3, 7, 28), normal(8, 3, 3, 7, seed=1), normal(8, seed=2)]),
    "apart": (conv(1, 3, (1, 2)), [normal(1, 2, 9, 12), normal(4, 2, 3, 5, seed=1), normal(4, seed=2)]),
    "taps above each other": (conv(), [normal(2, 3, 9, 8), normal(8, 3, 5, 1, seed=1), normal(8, seed=2)]),
    "a line": (conv(2, 1, rank=1), [normal(2, 5, 19), normal(8, 5, 4, seed=1), normal(8, seed=2)]),
    "work before": (
        lambda x, w, b: F.conv2d(x * 2 - 1, w, b), [normal(2, 3, 9, 8), normal(8, 3, 3, 3, seed=1), normal(8)],
    ),
    "bfloat16": (
        conv(1, 1), [normal(2, 3, 9, 8, dtype=BF16), normal(8, 3, 3, 3, seed=1, dtype=BF16), normal(8, dtype=BF16)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = CASES[name]
    whole = trace_function(function, inputs)
    graph = with_taps_as_channels(whole)
    assert graph is not whole and graph.fixed_shapes
    (ours,), (theirs,) = interpret(graph, list(inputs)), exactly(function, inputs)
    close(1e-2 if inputs[0].dtype == BF16 else 1e-6, of_largest=True)(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (conv(rank=3), [normal(2, 3, 16, 16, 16), normal(64, 3, 3, 3, 5, seed=1), normal(64)]),
        pytest.param(
            *(conv((2, 1), (1, 2)), [normal(4, 3, 64, 36), normal(64, 3, 3, 7, seed=1), normal(64)]),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_product_reads_boxes_of_channels(function, inputs, tmp_path):
    graph = with_taps_as_channels(with_tf32(trace_function(function, inputs)))
    plan = with_shared_kernels(cut(graph, AROUND_PRODUCTS))
    assert [launch.plan.pattern for launch in plan.launches] == ["elementwise", "elementwise", "contraction"]
    configuration = plan.configurations("sm_90a")[0]
    assert isinstance(configuration, HopperConfiguration)
    with emulated_hopper():
        ours = load(plan.render(configuration), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    close(2e-3, of_largest=True)(ours, exactly(function, inputs)[0])


def planned(size):
    x, w = (torch.empty(shape, device="meta") for shape in ((16, 3, size, size, size), (64, 3, 3, 5, 7)))
    return whole_or_cut(with_tf32(trace_function(F.conv3d, (x, w))))


@pytest.mark.slow
def test_it_is_chosen_where_it_is_predicted_to_be_faster():
    """The tiles that an H200 measured as the best: 920 us, where 192 x 128, half of them outside, took 1325."""
    assert [launch.plan.pattern for launch in planned(64).launches] == ["elementwise", "elementwise", "contraction"]
    best = planned(64).configurations("sm_90a")[0]
    assert (best.tile_m, best.tile_n, best.cluster_m) == (128, 64, 1)
    assert not hasattr(planned(8), "launches")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.conv2d(x, w[:, :1], groups=3),  # each channel by itself
        lambda x, w: F.conv2d(torch.cat([x] * 4, 1), torch.cat([w] * 4, 1)),  # as many channels as TMA reads
        lambda x, w: F.conv2d(x, w[..., :1, :1]),  # one tap
        lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1)),
        lambda x, w: F.conv2d(x.double(), w.double()),
    ],
)
def test_other_convolutions_stay_as_they_are(function):
    graph = trace_function(function, (normal(2, 3, 9, 8), normal(6, 3, 3, 3, seed=1)))
    assert with_taps_as_channels(graph) is graph

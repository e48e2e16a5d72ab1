"""Reductions of a transposed convolution's positions from its phases as they lie, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.cutting.cover import cut
from cutesmith.patterns.cutting.phase_reductions import with_reductions_of_phases
from cutesmith.patterns.cutting.phases import with_phases
from cutesmith.patterns.cutting.sharing import with_shared_kernels
from cutesmith.patterns.match import AROUND_PRODUCTS, plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, emulated_hopper, exactly, load, move, normal

IMAGE, WEIGHT, BIAS = normal(2, 4, 5, 6), normal(4, 6, 3, 3, seed=1), normal(6, seed=2)
VOLUME, SOLID = normal(2, 4, 3, 4, 3), normal(4, 6, 3, 2, 4, seed=1)


def of(function, *, dims: int = 2, **options):
    """A function of what a transposed convolution gives."""
    turned = getattr(F, f"conv_transpose{dims}d")
    return lambda x, w, b, *more: function(turned(x, w, b, stride=2, **options), *more)


def deviations(y):
    """Squared deviations from the variance's own mean: three reductions, of which each needs the one before."""
    return torch.var(y, (2, 3), correction=0) + (y.amax((2, 3)) - y.mean((2, 3)))


CASES = {
    "phases of different sizes": (of(lambda y: (torch.tanh(y) * 2).mean((2, 3))), (IMAGE, WEIGHT, BIAS)),
    "phases of equal sizes": (
        of(lambda y, r: (y * r).sum((2, 3), keepdim=True), padding=1, output_padding=1),
        (IMAGE, WEIGHT, BIAS, normal(2, 1, 1, 1, seed=3)),
    ),
    "places of phases apart": (
        of(lambda y: y.square().mean((2, 3)), padding=1),
        (IMAGE, normal(4, 6, 4, 4, seed=1), BIAS),
    ),
    "positions of all images": (of(lambda y: y.amin((0, 2, 3)), padding=1), (IMAGE, WEIGHT, BIAS)),
    "positions of all channels": (of(lambda y: y.sum((1, 2, 3)), padding=1), (IMAGE, WEIGHT, BIAS)),
    "variance": (of(deviations, padding=1), (IMAGE, WEIGHT, BIAS)),
    "variance of groups": (
        of(lambda y: y.view(y.shape[0], 2, -1, *y.shape[2:]).var((2, 3, 4)), padding=1),
        (IMAGE, WEIGHT, BIAS),
    ),
    "a solid": (of(lambda y: F.relu(y).amax((2, 3, 4)), dims=3, padding=1), (VOLUME, SOLID, BIAS)),
    "a line in thirds": (
        lambda x, w: (F.conv_transpose1d(x, w, None, 3, 1, 1) > 0.5).any(2),
        (normal(2, 4, 7), normal(4, 3, 4, seed=1)),
    ),
    "half precision": (of(lambda y: y.mean((2, 3)), padding=1), (IMAGE.half(), WEIGHT.half(), BIAS.half())),
    "least of channels": (of(lambda y: y.amin(1, keepdim=True) * 2, padding=1), (IMAGE, WEIGHT, BIAS)),
    "least of channels in rows": (
        of(lambda y: F.gelu(y.amin(1, keepdim=True).sum(2, keepdim=True))),
        (IMAGE, normal(4, 6, 4, 4, seed=1), BIAS),
    ),
    "one of several outputs": (
        of(lambda y, r: (y * r, y.mean((2, 3))), padding=1),
        (IMAGE, WEIGHT, BIAS, normal(9, 11, seed=3)),
    ),
}
IN_ORDER = {
    "of rows": (of(lambda y: y.sum(2)), (IMAGE, WEIGHT, BIAS)),
    "times a number of each position": (
        of(lambda y, r: (y * r).sum((2, 3))),
        (IMAGE, WEIGHT, BIAS, normal(11, 13, seed=3)),
    ),
    "the place of the largest": (of(lambda y: y.flatten(2).argmax(2)), (IMAGE, WEIGHT, BIAS)),
    "positions that nothing meets": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 3).exp().sum((2, 3)),
        (IMAGE, normal(4, 6, 2, 2, seed=1), BIAS),
    ),
}


def by_phases(function, inputs):
    return with_phases(trace_function(function, inputs))


def anchors(graph) -> list:
    return [node for node in graph.nodes() if node.op == "interleave"]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = CASES[name]
    graph = with_reductions_of_phases(by_phases(function, inputs))
    is_half = inputs[0].dtype == torch.float16
    results = zip(interpret(graph, list(inputs)), as_list(exactly(function, inputs)), strict=True)
    for ours, theirs in results:
        close(1e-3 if is_half else 1e-6, of_largest=True)(ours, theirs)
    sizes = [node.shape[1] for node in anchors(graph)]
    assert sizes == ([1] if "channels" in name and "all" not in name else [6] if "outputs" in name else [])


@pytest.mark.parametrize("name", IN_ORDER)
def test_what_needs_the_order_keeps_it(name):
    graph = by_phases(*IN_ORDER[name])
    assert with_reductions_of_phases(graph) is graph


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if "all" not in name and name != "variance"])
def test_results(name, tmp_path):
    function, inputs = CASES[name]
    plan = with_shared_kernels(cut(with_reductions_of_phases(by_phases(function, inputs)), AROUND_PRODUCTS))
    with emulated_hopper():
        found = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(*map(move, inputs))
    is_half = inputs[0].dtype == torch.float16
    for ours, theirs in zip(as_list(found), as_list(exactly(function, inputs)), strict=True):
        close(3e-3 if is_half else 3e-6, of_largest=True)(ours.cpu(), theirs)


def planned(function, *more):
    shapes = (16, 64, 128, 128), (64, 128, 3, 3), (128,), *more
    return plan_kernel(trace_function(function, [torch.empty(*shape, device="meta") for shape in shapes]), "sm_90a")


@pytest.mark.slow
def test_a_mean_is_made_of_phases_and_an_output_beside_it_of_positions():
    mean = planned(of(lambda y: y.mean((2, 3)), padding=1, output_padding=1))
    assert "interleaving" not in [launch.plan.pattern for launch in mean.launches]
    both = planned(of(lambda y: (y, y.mean((2, 3))), padding=1, output_padding=1))
    assert [launch.plan.pattern for launch in both.launches].count("interleaving") == 1

"""Transposed convolutions whose product stores each sum at its position, with the work on positions before that."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.cutting.cover import cut
from cutesmith.patterns.cutting.phases import with_phases
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.match import AROUND_PRODUCTS, plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import close, emulated_hopper, exactly, load, move, normal

IMAGE, WEIGHT, BIAS = normal(2, 16, 5, 6), normal(16, 24, 4, 4, seed=1), normal(24, seed=2)
VOLUME, SOLID = normal(2, 32, 3, 2, 3), normal(32, 8, 4, 2, 2, seed=1)


def turned(dims: int, **options):
    function = getattr(F, f"conv_transpose{dims}d")
    return lambda x, w, b: function(x, w, b, **options)


def gated(x, w, b, s, n):
    """Operands of a channel, of an image and of all; the positions twice."""
    y = F.conv_transpose2d(x, w, b, stride=2, padding=1)
    return F.silu(y * s + n) * y.clamp(min=-0.5)


CASES = {
    "no padding": (turned(2, stride=2), (IMAGE, WEIGHT, BIAS)),
    "more positions": (turned(2, stride=2, padding=2, output_padding=1), (IMAGE, WEIGHT, BIAS)),
    "work on positions": (gated, (IMAGE, WEIGHT, BIAS, normal(24, 1, 1, seed=3), normal(2, 1, 1, 1, seed=4))),
    "dilated": (turned(2, stride=2, dilation=(3, 1), padding=(2, 0)), (IMAGE, WEIGHT, BIAS)),
    "one dimension strides": (turned(2, stride=(1, 4), padding=1), (IMAGE, WEIGHT, BIAS)),
    "a solid in groups": (
        turned(3, stride=(2, 2, 1), padding=(1, 0, 0), groups=2),
        (VOLUME, SOLID, normal(16, seed=2)),
    ),
    "a line": (turned(1, stride=4, padding=1), (normal(2, 16, 9), normal(16, 8, 8, seed=1), normal(8, seed=2))),
}


def in_order(function, inputs):
    return with_phases(trace_function(function, inputs), for_tma=True, in_order=True)


@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = CASES[name]
    graph = in_order(function, inputs)
    assert [node.op for node in graph.nodes() if node.op in ("interleave", "depth_to_space")] == ["depth_to_space"]
    (ours,), (theirs,) = interpret(graph, list(inputs)), exactly(function, inputs)
    close(1e-6, of_largest=True)(ours, theirs)


APART = {
    "several products": (turned(2, stride=2), (IMAGE, normal(16, 24, 3, 3, seed=1), BIAS)),
    "few channels": (turned(2, stride=2), (normal(2, 3, 5, 6), normal(3, 24, 4, 4, seed=1), BIAS)),
    "positions that nothing meets": (turned(2, stride=2, dilation=2), (IMAGE, WEIGHT, BIAS)),
}


@pytest.mark.parametrize("name", APART)
def test_others_stay(name):
    graph = trace_function(*APART[name])
    assert with_phases(graph, for_tma=True, in_order=True) is graph


def result(launches, inputs, folder, chosen=lambda c: True):
    """That of all launches, the product by the first of its configurations that is chosen."""
    known = list(map(move, inputs))
    for launch in launches:
        problem = getattr(launch.plan, "problem", None)
        found = proposals(problem, parse_arch("sm_90a").sm, 1000) if problem else launch.plan.configurations()
        source = launch.plan.render(next(c for c in found if not isinstance(c, HopperConfiguration) or chosen(c)))
        passed = [known[s] if isinstance(s, int) else s.value([v.shape for v in known]) for s in launch.sources]
        known.append(load(source, folder).kernel_fn(*passed))
    return known[-1].cpu()


TILES = {
    "work on positions": lambda c: c.pingpong and c.tile_m == 192,
    "a line": lambda c: c.pingpong,
    "more positions": lambda c: c.cluster_m == 2,
    "one dimension strides": lambda c: c.columns == 64,
    "a solid in groups": lambda c: c.tile_m == 128,
}
ROUNDED = ("work on positions", "a line")
"""To tf32: warpgroups take turns at tiles."""


@pytest.mark.slow
@pytest.mark.parametrize("name", TILES)
def test_results(name, tmp_path):
    function, inputs = CASES[name]
    graph = with_tf32(in_order(function, inputs)) if name in ROUNDED else in_order(function, inputs)
    launches = cut(graph, AROUND_PRODUCTS).launches
    with emulated_hopper():
        out = result(launches, inputs, tmp_path, TILES[name])
    (expected,) = exactly(function, inputs)
    close(3e-3 if name in ROUNDED else 3e-6, of_largest=True)(out.view(expected.shape), expected)


@pytest.mark.slow
def test_results_in_half_precision(tmp_path):
    function, inputs = CASES["no padding"][0], (IMAGE.half(), WEIGHT.half(), BIAS.half())
    launches = cut(in_order(lambda *given: function(*given) > 0.25, inputs), AROUND_PRODUCTS).launches
    with emulated_hopper():
        out = result(launches, inputs, tmp_path)
    expected = function(*inputs)
    wrong = (out != (expected > 0.25)) & ((expected - 0.25).abs() > 0.03)
    assert out.dtype == torch.bool and not wrong.any()


def planned(function, *more):
    shapes = (128, 64, 64, 64), (64, 128, 4, 4), (128,), *more
    return plan_kernel(trace_function(function, [torch.empty(*shape, device="meta") for shape in shapes]), "sm_90a")


def test_one_launch_with_the_work_on_positions():
    plan = planned(lambda x, w, b: F.gelu(F.conv_transpose2d(x, w, b, stride=2)) * 2)
    *_, product = plan.launches
    assert product.plan.pattern == "contraction" and product.plan.graph.outputs[0].op == "depth_to_space"
    assert {launch.plan.pattern for launch in plan.launches[:-1]} == {"elementwise"}  # of weights and bias


@pytest.mark.slow
def test_what_reads_positions_follows():
    plan = planned(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2).softmax(1))
    assert [launch.plan.pattern for launch in plan.launches][-2:] == ["contraction", "columns"]


def test_two_results_in_different_order_are_refused():
    graph = in_order(lambda x, w: F.conv_transpose2d(x, w, stride=2), (IMAGE, normal(16, 4, 2, 2)))
    (placed,) = graph.outputs
    both = replace(graph, outputs=(placed, placed.inputs[0]))
    with pytest.raises(UnmatchedError, match="another order"):
        match(both)

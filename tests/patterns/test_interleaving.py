"""Positions of transposed convolutions from their phases, with the work around them and pooled, against float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.cutting.cover import cut
from cutesmith.patterns.cutting.phases import with_phases
from cutesmith.patterns.cutting.sharing import with_shared_kernels
from cutesmith.patterns.interleaving.plan import match
from cutesmith.patterns.match import AROUND_PRODUCTS
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import close, emulated_hopper, exactly, load, move, normal


def planned(function, inputs):
    return with_shared_kernels(cut(with_phases(trace_function(function, inputs)), AROUND_PRODUCTS))


def patterns(plan) -> list[str]:
    return [
        launch.plan.pattern for launch in plan.launches if launch.plan.pattern not in ("contraction", "elementwise")
    ]


def residual(x, w, b, r):
    """An operand of every position, and one of a channel."""
    return F.hardswish(F.conv_transpose2d(x, w, b, 2, 1, 1) + r) * r


def pooled(pool, *more):
    def function(x, w, b):
        turned = getattr(F, f"conv_transpose{x.dim() - 2}d")(x, w, b, 2, 1, *more)
        return pool(turned * 2 - b.view(-1, *[1] * (x.dim() - 2))) + 1

    return function


IMAGE, WEIGHT, BIAS = normal(2, 4, 5, 6), normal(4, 3, 3, 3, seed=1), normal(3, seed=2)
VOLUME, SOLID = normal(1, 4, 3, 4, 5), normal(4, 3, 3, 3, 3, seed=1)
CASES = {
    "rows in vectors": (residual, (IMAGE, WEIGHT, BIAS, normal(2, 3, 10, 12, seed=3))),
    "a gap behind rows": (residual, (IMAGE, WEIGHT, BIAS, normal(2, 3, 10, 13, seed=3)[..., :12])),
    "each column of an operand": (residual, (IMAGE, WEIGHT, BIAS, normal(12, seed=3))),
    "each row of an operand": (residual, (IMAGE, WEIGHT, BIAS, normal(10, 1, seed=3))),
    "last blocks cut": (lambda x, w, b: F.relu(F.conv_transpose3d(x, w, b, 2, 1)), (VOLUME, SOLID, BIAS)),
    "half precision": (
        lambda x, w, b: torch.tanh(F.conv_transpose2d(x, w, b, 2, 1)),
        (IMAGE.half(), WEIGHT.half(), BIAS.half()),
    ),
    "strides of three": (
        lambda x, w: F.conv_transpose1d(x, w, None, 3, 1) > 0.5,
        (normal(2, 4, 7), normal(4, 3, 4, seed=1)),
    ),
}
POOLED = {
    "largest of blocks": (pooled(lambda x: F.max_pool2d(x, 2), 1), (IMAGE, WEIGHT, BIAS)),
    "what is left over": (pooled(lambda x: F.max_pool3d(x, 2)), (VOLUME, SOLID, BIAS)),
    "means of blocks": (pooled(lambda x: F.avg_pool3d(x, 2, divisor_override=5), 1), (VOLUME, SOLID, BIAS)),
}
APART = {
    "windows that overlap": (pooled(lambda x: F.max_pool2d(x, 3, 2), 1), (IMAGE, WEIGHT, BIAS)),
    "larger windows": (pooled(lambda x: F.avg_pool2d(x, 4), 1), (IMAGE, WEIGHT, BIAS)),
    "places": (pooled(lambda x: F.max_pool2d(x, 2, return_indices=True)[1], 1), (IMAGE, WEIGHT, BIAS)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CASES, *POOLED])
def test_results(name, tmp_path):
    function, inputs = {**CASES, **POOLED}[name]
    plan = planned(function, inputs)
    assert patterns(plan) == ["interleaving"]
    with emulated_hopper():
        out = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    expected = function(*inputs)
    assert (out.shape, out.dtype) == (expected.shape, expected.dtype)
    half = inputs[0].dtype == torch.float16
    close(3e-3 if half else 3e-6, of_largest=True)(out, *exactly(function, inputs))


@pytest.mark.slow
def test_nan_is_the_largest_of_its_block_alone(tmp_path):
    function, (x, w, b) = POOLED["largest of blocks"]
    x = x.clone()
    x[0, 1, 2, 3] = math.nan
    x[1, 0] = -math.inf
    plan = planned(function, (x, w.abs(), b))
    with emulated_hopper():
        out = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(move(x), move(w.abs()), move(b)).cpu()
    expected = function(x, w.abs(), b)
    assert 0 < expected.isnan().sum() < 40 and expected.isinf().any()
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", APART)
def test_other_windows_are_a_launch_of_their_own(name):
    plan = planned(*APART[name])
    assert patterns(plan) == ["interleaving", "windows"]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_pytorch_does(name):
    function, inputs = CASES[name]
    graph = with_phases(trace_function(function, inputs))
    assert [node.op for node in graph.nodes()].count("interleave") == 1
    (ours,), (theirs,) = interpret(graph, list(inputs)), exactly(function, inputs)
    close(1e-3 if inputs[0].dtype == torch.float16 else 1e-6, of_largest=True)(ours, theirs)


def test_many_positions_of_a_block_stay_with_the_product_of_all_taps():
    x, w = normal(1, 2, 3, 3, 3), normal(2, 2, 5, 5, 5, seed=1)
    graph = trace_function(lambda x, w: F.conv_transpose3d(x, w, None, 5), (x, w))
    assert with_phases(graph) is graph


@pytest.mark.slow
def test_two_transposed_convolutions_are_put_in_order_by_two_launches():
    plan = planned(
        lambda x, w, v: F.conv_transpose2d(x, w, None, 2) + F.conv_transpose2d(x, v, None, 2),
        (IMAGE, WEIGHT, normal(4, 3, 3, 3, seed=5)),
    )
    assert patterns(plan) == ["interleaving", "interleaving"]
    with pytest.raises(UnmatchedError, match="0 values of phases"):
        match(trace_function(torch.relu, (IMAGE,)))

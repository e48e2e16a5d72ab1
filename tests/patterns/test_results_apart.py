"""Reductions whose results keep a short dimension: one launch makes a result for each place along it."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.columns.plan import match as columns
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.cutting.short_reductions import with_short_reductions
from cutesmith.patterns.match import plan_kernel, with_slices_apart
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import close, emulated_hopper, exactly, first_kernel, move, normal


def forces(x, m):
    """Of bodies on each other: the distance is the same for all coordinates."""
    d = x[None] - x[:, None]
    distances = ((d * d).sum(-1) + 1e-3)[..., None]
    return (m[None, :, None] * d * distances**-1.5).sum(1) * 2


def centres(x, y):
    """Weighted means, with the coordinates first."""
    weights = (-(x[:, :, None] - y[:, None]).square().sum(0)).exp()
    return (y[:, None] * weights).sum(-1) / weights.sum(-1)


CASES = {
    "forces": (forces, [normal(40, 3), normal(40)]),
    "centres": (centres, [normal(2, 30), normal(2, 50, seed=1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_reductions_apart_are_the_same(name):
    function, inputs = CASES[name]
    graph = with_slices_apart(trace_function(function, inputs))
    assert not any(node.is_reduction and len(set(node.shape) - {1}) > 1 for node in graph.nodes())
    for ours, theirs in zip(interpret(graph, inputs), exactly(function, inputs), strict=True):
        close(1e-5)(ours, theirs)


def test_what_is_mostly_different_stays_together():
    graph = trace_function(lambda x, m: (x.exp() * m[:, :, None]).sum(1), [normal(20, 30, 3), normal(20, 30)])
    assert with_slices_apart(graph) is graph


def traced_forces():
    with torch.device("meta"):
        return trace_function(forces, [torch.empty(4096, 3), torch.empty(4096)])


def test_the_work_that_places_share_is_predicted_for_each_of_them():
    graph = traced_forces()
    plan = plan_kernel(graph, "sm_90a")
    assert isinstance(plan, ChainPlan)
    assert [launch.plan.pattern for launch in plan.launches] == ["columns", "elementwise"]
    assert H200.seconds(columns(with_short_reductions(graph))) > 3 * H200.seconds(plan)


@pytest.mark.slow
def test_the_launches_give_the_numbers(tmp_path):
    inputs = [normal(70, 3), normal(70)]
    kernel_fn = first_kernel(plan_kernel(traced_forces(), "sm_90a"), tmp_path).kernel_fn
    with emulated_hopper():
        close(1e-5)(kernel_fn(*map(move, inputs)).cpu(), *exactly(forces, inputs))
        with pytest.raises(ValueError, match="3"):
            kernel_fn(move(normal(70, 4)), move(normal(70)))

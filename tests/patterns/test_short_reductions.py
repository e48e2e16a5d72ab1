"""Short reductions of pairs, which are not stored: distances of points, and the reductions of those."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.patterns.columns.plan import ColumnsPlan
from cutesmith.patterns.cutting.short_reductions import with_short_reductions
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, emulated_hopper, exactly, first_kernel, move, normal


def chamfer(x, y):
    distances = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    return distances.amin(1).mean() + distances.amin(2).mean()


def nearest(x, y):
    """Of all other points: the distance, and which it is."""
    return (x[:, None] - y).abs().amax(-1).min(1)


REDUCTIONS = {
    "sum": lambda x, y: ((x[:, None] - y) ** 2).sum(-1),
    "mean, dimension dropped": lambda x, y: (x[:, None] * y).mean(-1).exp(),
    "largest": lambda x, y: (x[:, None] - y).abs().amax(-1, keepdim=True),
    "product": lambda x, y: (torch.minimum(x[:, None], y) + 1).prod(-1),
    "in the middle": lambda x, y: (x.t()[:, :, None] - y.t()[:, None]).square().sum(0).sqrt(),
}


def planned(function, *shapes, dtype=torch.float32):
    with torch.device("meta"):
        return plan_kernel(trace_function(function, [torch.empty(shape, dtype=dtype) for shape in shapes]), "sm_90a")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_of_slices_are_what_the_reduction_is(name, dtype):
    inputs = [normal(30, 3, dtype=dtype), normal(40, 3, dtype=dtype, seed=1)]
    graph = with_short_reductions(trace_function(REDUCTIONS[name], inputs))
    assert not any(node.is_reduction for node in graph.nodes())
    for ours, theirs in zip(interpret(graph, inputs), exactly(REDUCTIONS[name], inputs), strict=True):
        close(1e-6)(ours, theirs)


@pytest.mark.slow
def test_distances_are_computed_again_and_never_stored(tmp_path):
    plan = planned(chamfer, (8, 2048, 3), (8, 2048, 3))
    moved = sum(launch.plan.algorithmic_bytes for launch in plan.launches)
    assert moved < 8 * 2048 * 4 * 64  # the distances have 134 MB
    assert [launch.plan.pattern for launch in plan.launches].count("columns") == 2
    x, y = normal(2, 150, 3), normal(2, 140, 3, seed=1)
    y[0, 3, 1] = math.nan
    module = first_kernel(plan, tmp_path)
    with emulated_hopper():
        for inputs in ([x[1:], y[1:]], [x, y]):
            (ours,) = as_list(module.kernel_fn(*map(move, inputs)))
            close(1e-5)(ours.cpu(), *exactly(chamfer, inputs))


@pytest.mark.slow
def test_rows_of_the_same_elements_share_their_loads(tmp_path):
    plan = planned(nearest, (4096, 4), (1000, 4))
    assert isinstance(plan, ColumnsPlan)
    inputs = [normal(70, 4), normal(300, 4, seed=1)]
    with emulated_hopper():
        outs = as_list(first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)))
    for ours, theirs in zip(outs, exactly(nearest, inputs), strict=True):
        close(1e-6)(ours.cpu(), theirs)


@pytest.mark.slow
def test_points_of_other_dimensions_are_refused(tmp_path):
    kernel_fn = first_kernel(planned(chamfer, (8, 2048, 3), (8, 2048, 3)), tmp_path).kernel_fn
    with emulated_hopper():
        for shapes in [((2, 70, 4), (2, 70, 4)), ((2, 70, 1), (2, 70, 3)), ((2, 70, 3), (2, 70, 1))]:
            with pytest.raises(ValueError, match="3"):
                kernel_fn(*(move(normal(*shape)) for shape in shapes))


def test_rows_that_lie_in_memory_are_reduced_as_they_are():
    pairs = lambda x, y: (x[:, None] - y[None]).abs().sum((0, -1))  # noqa: E731
    for function, shapes in [
        (lambda x: x.sum(-1), [(700, 3)]),
        (lambda x, y: (x - y).sum(-1), [(700, 9), (80, 1, 9)]),
        (pairs, [(0, 3), (0, 3)]),  # of no pairs
    ]:
        graph = trace_function(function, [normal(*shape) for shape in shapes])
        assert with_short_reductions(graph) is graph

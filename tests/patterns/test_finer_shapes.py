"""Pointwise work on both sides of a reshape is one launch: joined values that are scaled in groups."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.cutting.finer_shapes import with_finer_shapes
from cutesmith.patterns.elementwise.lanes import LanesKernel
from cutesmith.patterns.elementwise.plan import ElementwisePlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import close, emulated_hopper, exactly, first_kernel, move, normal


def of_halves(w, scale):
    """Two numbers of 4 bits a byte, scaled in groups of 32."""
    full = torch.stack(((w & 15).float() - 8, (w >> 4).float() - 8), -1).flatten(1)
    return (full.view(len(full), -1, 32) * scale[..., None]).flatten(1)


def seen_again(a, b, scale):
    """A result in two shapes, and the joined value itself."""
    joined = torch.stack((a, b), -1).flatten(1)
    return joined, (joined.view(len(joined), -1, 8) - scale[..., None]).relu()


BYTES = torch.arange(6 * 48, dtype=torch.uint8).view(6, 48)
CASES = {
    "halves": (of_halves, [BYTES, normal(6, 3)]),
    "seen again": (seen_again, [normal(3, 8), normal(3, 8, seed=1), normal(3, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_work_in_the_shape_of_both_sides_is_the_same(name):
    function, inputs = CASES[name]
    graph = with_finer_shapes(trace_function(function, inputs))
    assert not any(each.op == "reshape" for node in graph.nodes() if node.is_pointwise for each in node.inputs)
    for ours, theirs in zip(interpret(graph, inputs), exactly(function, inputs), strict=True):
        close(1e-6)(ours, theirs)


@pytest.mark.slow
def test_one_launch_joins_and_scales(tmp_path):
    function, inputs = CASES["halves"]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert isinstance(plan, ElementwisePlan)
    assert isinstance(plan.kernel, LanesKernel)
    kernel_fn = first_kernel(plan, tmp_path).kernel_fn
    with emulated_hopper():
        close(1e-6)(kernel_fn(*map(move, inputs)).cpu(), *exactly(function, inputs))
        with pytest.raises(ValueError, match="sizes"):
            kernel_fn(*(move(each[:, : each.shape[1] // 2].contiguous()) for each in inputs))


def test_other_graphs_stay_as_they_are():
    for function, shapes in [
        (lambda x, y: (x.exp().view(6, 4) * y).flatten(), [(24,), (6, 4)]),  # pushed to the argument
        (lambda x, y: torch.stack((x, y), -1).flatten(1), [(3, 4), (3, 4)]),  # only returned in another shape
    ]:
        graph = trace_function(function, [normal(*shape) for shape in shapes])
        assert with_finer_shapes(graph) is graph

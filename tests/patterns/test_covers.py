"""Where candidates are timed, other launches for the same function are raced against the best cover."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.cutting.runners_up import NEAR, plans_of
from cutesmith.patterns.generation.drafting import cover_of, draft_kernels, render_covers
from cutesmith.patterns.match import plan_covers
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import check_product, normal

BF16 = torch.bfloat16


def meta(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def with_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def normed(x, w, b, g, h):
    return F.layer_norm(F.linear(x, w, b), (x.shape[-1],), g, h)


def gate(x, w, v, o):
    return (F.silu(x @ w) * (x @ v)) @ o


SIZES = {
    with_gelu: [(8192, 4096), (8192, 4096), (8192,)],
    normed: [(8192, 1024), (1024, 1024), (1024,), (1024,), (1024,)],
    gate: [(4096, 1024), (1024, 2816), (1024, 2816), (2816, 1024)],
}


def covers_of(function, *, raced: bool = True):
    graph = trace_function(function, [meta(*shape) for shape in SIZES[function]])
    return plan_covers(graph, "sm_90a", raced=raced)


@pytest.mark.parametrize("function", SIZES)
def test_covers_beside_the_best_launch_something_else_and_are_near_in_predicted_time(function):
    best, *others = covers_of(function)
    assert others
    for other in others:
        assert [plan.graph for plan in plans_of(other)] != [plan.graph for plan in plans_of(best)]
        assert H200.seconds(best) <= H200.seconds(other) <= NEAR * H200.seconds(best)


def test_an_epilogue_is_raced_against_a_launch_of_its_own():
    """One pattern takes the whole function, so that no cut of it was tried to plan it."""
    best, other, *_ = covers_of(with_gelu)
    assert best.pattern == "contraction" and isinstance(other, ChainPlan)
    assert [launch.plan.pattern for launch in other.launches] == ["contraction", "elementwise"]
    assert cover_of(other).told.startswith("2 launches (product, pointwise), ")


def test_nothing_beside_the_plan_is_made_where_nothing_is_raced():
    (plan,) = covers_of(with_gelu, raced=False)
    assert cover_of(plan) == cover_of(covers_of(with_gelu)[0])


def test_what_takes_far_longer_unfused_is_not_raced():
    assert len(plan_covers(trace_function(lambda x: x.softmax(-1), [meta(4096, 4096)]), "sm_90a", raced=True)) == 1
    heads = [meta(4, 16, 2048, 64)] * 3
    assert len(plan_covers(trace_function(F.scaled_dot_product_attention, heads), "sm_90a", raced=True)) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("limit", "expected"),
    [(1, [0]), (2, [0, 1]), (3, [0, 0, 1]), (4, [0, 0, 0, 1]), (8, [0, 0, 0, 0, 0, 0, 1, 2])],
)
def test_a_quarter_of_the_places_is_for_other_covers(limit, expected):
    plans = covers_of(gate)
    assert len(plans) == 3
    kept, rendered, _ = render_covers(plans, "sm_90a", limit)
    assert [each.cover for each in rendered] == expected and len(kept) == len({*expected})
    assert len({each.source for each in rendered}) == limit


def test_a_single_cover_beside_the_best_has_all_their_places():
    plans = covers_of(with_gelu)[:2]
    _, rendered, _ = render_covers(plans, "sm_90a", 8)
    assert [each.cover for each in rendered] == [0] * 6 + [1] * 2


@pytest.mark.slow
def test_all_covers_give_the_values_of_the_function(tmp_path):
    inputs = [normal(72, 64, dtype=BF16), normal(48, 64, dtype=BF16, seed=1), normal(48, dtype=BF16, seed=2)]
    for plan in covers_of(with_gelu):
        check_product(plan, plan.configurations("sm_90a")[0], with_gelu, inputs, tmp_path)


PROBLEM = """import torch
import torch.nn.functional as F


def reference_fn(x, w, b):
    return F.gelu(F.linear(x, w, b))


def get_inputs():
    shapes = ((8192, 4096), (8192, 4096), (8192,))
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
"""


@pytest.mark.slow
def test_a_draft_that_is_timed_has_whole_files_of_other_covers_whose_heads_say_so(tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM)
    draft = draft_kernels(problem, "sm_90a", limit=4, timed=True)
    (fused, *others) = draft.covers
    assert fused.launches == 1 and [cover.launches for cover in others] == [2]
    assert [kernel.cover for kernel in draft.kernels] == [0, 0, 0, 1]
    for kernel in draft.kernels:
        head = " ".join(kernel.source.split('"""')[1].split())
        assert f"this is {draft.covers[kernel.cover].told}; beside it: {draft.covers[not kernel.cover].told}" in head
        assert kernel.source.endswith(PROBLEM)
    alone = draft_kernels(problem, "sm_90a", limit=4, timed=False)
    assert len(alone.covers) == 1 and "covers" not in alone.kernels[0].source

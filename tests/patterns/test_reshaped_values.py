"""Norms of heads that no tile is as wide as: what is computed before the reshape is computed behind it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.cutting.reshaped_values import with_functions_behind_reshapes
from cutesmith.patterns.match import plan_kernel
from tests.patterns.running import check_product, normal, traced

BF16 = torch.bfloat16


def head_norms(x, w, g):
    return F.rms_norm((x @ w).view(x.shape[0], -1, g.shape[0]), g.shape, g, 1e-6)


def turned_heads(x, w, b, g):
    heads = F.linear(x, w, b).view(2, -1, 3, g.shape[0])
    return F.rms_norm(heads, g.shape, g, 1e-6).transpose(1, 2)


CASES = {
    "head_norms": (
        head_norms,
        (normal(33, 64, dtype=BF16), normal(64, 816, dtype=BF16, seed=1), normal(272, dtype=BF16)),
    ),
    "turned_heads": (
        turned_heads,
        (normal(2, 17, 64), normal(816, 64, seed=1), normal(816, seed=2), normal(272, seed=3)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_heads_are_normalised_as_pytorch_does(name, arch, tmp_path):
    function, inputs = CASES[name]
    plan = plan_kernel(traced(function, inputs), arch)
    assert [launch.plan.pattern for launch in plan.launches] == ["contraction", "rows"]
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)


def test_the_projection_is_stored_once_in_its_own_type():
    """Not its cast and its square, which are float32 before the heads are told apart."""
    sizes = (8192, 4096), (4096, 4096), (512,)
    inputs = tuple(torch.empty(*each, dtype=BF16, device="meta") for each in sizes)
    product, norms = plan_kernel(traced(head_norms, inputs), "sm_90a").launches
    assert [(node.op, node.dtype) for node in product.plan.graph.outputs] == [("contract", "bfloat16")]
    assert norms.plan.pattern == "rows"


def test_a_function_of_two_values_stays_before_the_reshape():
    graph = traced(lambda x, w, r: ((x @ w) * r).view(4, 2, 3).sum(-1), (normal(4, 5), normal(5, 6), normal(4, 6)))
    assert with_functions_behind_reshapes(graph) is graph

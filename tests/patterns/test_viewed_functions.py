"""Views of what is computed from a product: norms of heads that are rotated take one launch behind the projection."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.cutting.reshaped_values import with_functions_behind_reshapes
from cutesmith.patterns.cutting.viewed_functions import with_views_of_products
from cutesmith.patterns.match import plan_kernel
from tests.patterns.running import check_any_rows_and_heads, check_product, normal, traced
from tests.patterns.test_rotated_heads import as_models_have_it, heads_of, patterns, rotate_half, sized

BF16 = torch.bfloat16


def layer_norm(x, w, g, cos, sin):
    """A norm with a mean beside the variance, in float32."""
    heads = F.layer_norm(heads_of(x, w, g.shape[0]).float(), g.shape, g.float()).transpose(1, 2).to(x.dtype)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return heads * cos + rotate_half(heads) * sin


def unit(x, w, cos, sin):
    """Heads of length 1."""
    heads = F.normalize(heads_of(x, w, cos.shape[-1]), dim=-1).transpose(1, 2)
    return heads * cos.unsqueeze(1) + rotate_half(heads) * sin.unsqueeze(1)


CASES = {
    "norm": (as_models_have_it, sized((2, 17), 3, 64)),
    "layer norm": (layer_norm, sized((2, 9), 2, 64)),
    "unit": (unit, sized((3, 5), 3, 32, norm=False)),
    "heads of 128": (as_models_have_it, sized((1, 19), 2, 128)),
}


def seen(function, inputs):
    return with_views_of_products(with_functions_behind_reshapes(traced(function, inputs)))


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.sampled(4)) for case in CASES])
def test_a_norm_and_a_rotation_read_the_product_once(case, tmp_path):
    function, inputs = CASES[case]
    plan = plan_kernel(seen(function, inputs), "sm_90a")
    assert patterns(plan) == ["contraction", "rows"]
    check_product(plan, plan.configurations("sm_90a")[0], function, inputs, tmp_path)


@pytest.mark.slow
def test_the_kernels_take_any_rows_and_heads(tmp_path):
    graph = traced(*CASES["norm"])
    plan = plan_kernel(with_views_of_products(with_functions_behind_reshapes(graph)), "sm_90a", free_sizes=True)
    assert patterns(plan) == ["contraction", "rows"]
    check_any_rows_and_heads(plan, as_models_have_it, lambda rows, heads: sized(rows, heads, 64), tmp_path)


def empty(*shape):
    return torch.empty(*shape, dtype=BF16, device="meta")


def test_two_launches_are_chosen_where_the_products_kernel_would_wait_for_angles():
    """403 us on an H200 where the rotation is part of the product's launch, 402 with the norm there."""
    inputs = empty(1, 8192, 4096), empty(4096, 4096), empty(128), empty(1, 8192, 128), empty(1, 8192, 128)
    assert patterns(plan_kernel(traced(as_models_have_it, inputs), "sm_90a")) == ["contraction", "rows"]


def not_reduced(x, w, cos, sin):
    heads = heads_of(x, w, cos.shape[-1]).transpose(1, 2)
    return heads * cos.unsqueeze(1) + rotate_half(heads) * sin.unsqueeze(1)


def scanned(x, w):
    return heads_of(x, w, 32).cumsum(1).softmax(-1).transpose(1, 2) * 2


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (not_reduced, (normal(2, 5, 64), normal(96, 64), normal(2, 5, 32), normal(2, 5, 32))),
        (scanned, (normal(2, 5, 64), normal(96, 64))),
    ],
)
def test_other_views_are_left_as_they_are(function, inputs):
    graph = traced(function, inputs)
    assert with_views_of_products(graph) is graph

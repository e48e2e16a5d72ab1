"""What is part of the launch of a product: all that follows, of one sequence, too; and which results it stores."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.match import plan_kernel
from tests.patterns.running import check_product, normal, traced

BF16 = torch.bfloat16


def biased(x, w, r):
    return F.gelu(F.linear(x, w, r.flatten()[: w.shape[0]]))


def residual(x, w, r):
    return F.relu(F.linear(x, w)) * 0.5 + r


def by_einsum(x, w, r):
    return torch.einsum("bsd,fd->bsf", x, w) + r


FUNCTIONS = [biased, residual, by_einsum]


def empty(*shape):
    return torch.empty(*shape, dtype=BF16, device="meta")


@pytest.mark.parametrize("rows", [(1, 8192), (8192, 1), (4, 2048)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_follows_takes_no_launch_of_its_own(function, rows):
    inputs = empty(*rows, 4096), empty(4096, 4096), empty(*rows, 4096)
    assert plan_kernel(traced(function, inputs), "sm_90a").pattern == "contraction"


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    "rows", [pytest.param(rows, marks=pytest.mark.sampled(4)) for rows in [(1, 33), (5, 1), (1, 1, 9)]]
)
@pytest.mark.parametrize("function", [biased, residual])
def test_results(function, rows, arch, tmp_path):
    inputs = normal(*rows, 64, dtype=BF16), normal(264, 64, dtype=BF16, seed=1), normal(*rows, 264, dtype=BF16, seed=2)
    plan = plan_kernel(traced(function, inputs), arch)
    assert plan.pattern == "contraction"
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)


def normed(x, w, g, r):
    """A residual and the norm behind it, which squares it in float32."""
    hidden = F.linear(x, w) + r
    return F.rms_norm(hidden, g.shape, g, 1e-6), hidden


def test_a_norm_squares_the_residual_that_it_reads(tmp_path):
    """The product stores its 16-bit result alone: 387 us are predicted for 8192 x 4096 x 4096, 402 with the squares."""
    inputs = (
        normal(1, 33, 64, dtype=BF16),
        normal(264, 64, dtype=BF16, seed=1),
        normal(264, dtype=BF16, seed=2),
        normal(1, 33, 264, dtype=BF16, seed=3),
    )
    plan = plan_kernel(traced(normed, inputs), "sm_90a")
    product, rows = plan.launches
    assert [output.dtype for output in product.plan.graph.outputs] == ["bfloat16"]
    assert rows.plan.pattern == "rows"
    check_product(plan, plan.configurations("sm_90a")[0], normed, inputs, tmp_path)


def gelu_twice(x, w, v):
    """A product's factor has to lie in memory."""
    hidden = F.linear(x, w)
    return F.linear(F.gelu(hidden), v) + hidden


def test_the_factor_of_a_product_stays_in_the_launch_before():
    inputs = empty(2048, 4096), empty(4096, 4096), empty(4096, 4096)
    assert [launch.plan.pattern for launch in plan_kernel(traced(gelu_twice, inputs), "sm_90a").launches] == [
        "contraction"
    ] * 2

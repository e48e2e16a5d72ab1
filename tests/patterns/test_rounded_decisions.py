"""Values of 16 bits on which steps depend: every launch sees the digits that PyTorch gives them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.cutting.rounded_decisions import with_rounded_decisions
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated_hopper, first_kernel, move, normal

HALF, BRAIN = torch.float16, torch.bfloat16


def deviation_by_itself(x):
    deviation = x.std(0)
    chosen = deviation.masked_fill(deviation > 1, -1.0)
    return F.layer_norm(chosen, chosen.shape[-1:]), chosen // deviation


def normed_beside_its_square(x, w, b):
    several = x.expand(2, *x.shape) * 2
    several = several * several - 1
    return several[1:], F.batch_norm(several, None, None, w, b, True)


def quantised(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def place_of_the_largest(x, y):
    return (x * y).argmax(-1)


def whole_part(x):
    return (x * 1.5).to(torch.int32)


def chosen_by_a_product(x, y):
    return torch.where(x * y > 0.5, x, y)


def softplus_of_double(x):
    return F.softplus(x * 2)


def where_a_sum_begins(x, y):
    """An exclusive sum by subtraction: 0 at first, though the products are rounded and their sums may be fused."""
    product = x * y
    return (product.cumsum(-1) - product).sign()


def ends_of_sums(x):
    curved = F.gelu(x)
    whole = (curved.cumsum(-1) - curved).ceil()
    whole[..., :1] += whole[..., -1:]
    return whole


def remainder_of_a_fused_step(x):
    """PyTorch rounds `logaddexp` once: with its steps rounded, that of -0.6914 is 0."""
    return torch.remainder(x, torch.logaddexp(x, x))


def part_of_a_sum(x, y):
    return (x * y + x)[:, :7].floor()


def turned_sum(x, y):
    return (x * y + x).t().floor()


def two_calls_in_a_line(x):
    return F.silu(F.silu(x)).floor()  # PyTorch rounds the result of each


def part_of_fused_steps(x):
    return torch.remainder(x[1:], torch.logaddexp(x, x)[1:])


CASES = {
    "part of a sum": (part_of_a_sum, [normal(400, 9, dtype=BRAIN) * 9, normal(400, 9, dtype=BRAIN, seed=1) * 9]),
    "a turned sum": (turned_sum, [normal(400, 9, dtype=BRAIN) * 9, normal(400, 9, dtype=BRAIN, seed=1) * 9]),
    "one operation twice": (two_calls_in_a_line, [normal(40000, dtype=BRAIN) * 20]),
    "part of steps of one operation": (part_of_fused_steps, [torch.linspace(-1, 1, 257).to(BRAIN)]),
    "steps of one operation": (remainder_of_a_fused_step, [torch.linspace(-1, 1, 257).to(BRAIN)]),
    "products taken from their sums": (where_a_sum_begins, [normal(64, 300), normal(64, 300, seed=1)]),
    "slices of them": (ends_of_sums, [normal(40, 7)]),
    "products of 16 bits": (where_a_sum_begins, [normal(9, 40, dtype=BRAIN), normal(9, 40, dtype=BRAIN, seed=1)]),
    "floor of a quotient": (deviation_by_itself, [normal(4, 257, dtype=HALF)]),
    "a difference of equals": (
        normed_beside_its_square,
        [normal(16, 1, dtype=BRAIN), normal(16, dtype=BRAIN, seed=1), normal(16, dtype=BRAIN, seed=2)],
    ),
    "round": (quantised, [normal(8, 200, dtype=BRAIN)]),
    "argmax": (place_of_the_largest, [normal(32, 300, dtype=BRAIN), normal(32, 300, dtype=BRAIN, seed=1)]),
    "to integers": (whole_part, [normal(1000, dtype=BRAIN) * 8]),
    "comparison": (chosen_by_a_product, [normal(30000, dtype=BRAIN), normal(30000, dtype=BRAIN, seed=1)]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_steps_are_where_pytorch_has_them(name, tmp_path):
    function, inputs = CASES[name]
    kernel = first_kernel(plan_kernel(trace_function(function, inputs), "sm_90a"), tmp_path)
    with emulated_hopper():
        found = [out.cpu() for out in as_list(kernel.kernel_fn(*map(move, inputs)))]
    for ours, theirs in zip(found, as_list(function(*inputs)), strict=True):
        tolerance = 2**-6 if theirs.is_floating_point() else 0
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "function",
    [
        F.relu,
        F.leaky_relu,
        F.elu,
        softplus_of_double,
        lambda x: x.clamp(-1, 1),
        lambda x: x.abs() > 0.5,
        lambda x: x.softmax(-1),
        lambda x: (x * x).cumsum(-1) - x * x,
    ],
)
def test_values_that_no_step_depends_on_keep_their_digits(function):
    graph = trace_function(function, [normal(8, 64, dtype=BRAIN)])
    assert with_rounded_decisions(graph) is graph

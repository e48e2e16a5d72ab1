"""Products of groups of rows, and of chosen matrices, by TMA and wgmma: forms, operands, tails, ends that are wrong."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated, load, move, normal, run_on_few
from tests.patterns.test_grouped_products import BF16, beside, by_group, grouped

ENDS = torch.tensor([0, 70, 70, 200, 201, 290], dtype=torch.int32)
"""Of 300 rows: groups without any, of one row, of more than a tile; the last ends before the rows do."""

FORMS = {  # whether warpgroups take turns, whether rows are columns of tiles, the cluster
    "turns": (True, False, 1, 1),
    "turns, shared weights": (True, False, 2, 1),
    "turns, shared rows": (True, False, 1, 2),
    "shared tile": (False, False, 1, 1),
    "shared tile and weights": (False, False, 2, 1),
    "shared tile and rows": (False, False, 1, 2),
    "transposed": (False, True, 1, 1),
}


def and_slow(fast: str):
    """All forms: one at once, the others in `make test-all`; the two forms that differ most have a test each."""
    return [pytest.param(form, marks=[] if form == fast else pytest.mark.slow) for form in FORMS]


def of_form(plan, form: str) -> HopperConfiguration:
    """The first configuration of a form."""
    found = proposals(plan.problem, parse_arch("sm_90a").sm, most=1000)
    return next(c for c in found if (c.pingpong, c.swapped, c.cluster_m, c.cluster_n) == FORMS[form])


def planned(function, inputs):
    return plan_kernel(trace_function(function, inputs), "sm_90a", free_sizes=True)


def factors(k: int, n: int, dtype: torch.dtype = BF16):
    return normal(300, k, dtype=dtype), normal(len(ENDS), k, n, dtype=dtype, seed=1), ENDS


def exact(x, w, ends):
    """In float64; rows behind the last group are zeros."""
    products = by_group(x, w, ends)
    return torch.cat((products, products.new_zeros(len(x) - len(products), w.shape[-1])))


@pytest.mark.slow
@pytest.mark.parametrize("form", and_slow("turns"))
def test_tiles_hold_rows_of_one_group(form, tmp_path):
    """Three blocks take many tiles each; k and n end within a tile."""
    inputs = factors(72, 200)
    plan = planned(grouped, inputs)
    with emulated("sm_90a"):
        actual = run_on_few(plan.render(of_form(plan, form)), tmp_path, inputs, 3)
    beside(actual, exact(*inputs), BF16)


@pytest.mark.slow
def test_stores_that_reach_into_the_next_group_are_found(tmp_path):
    """What the test above would miss if it could not fail: TMA stores whole tiles, whose rows belong to two groups."""
    inputs = factors(72, 200)
    plan = planned(grouped, inputs)
    text = plan.render(of_form(plan, "turns"))
    assert "if left_rows >= ROWS:" in text
    with pytest.raises(AssertionError), emulated("sm_90a"):
        actual = run_on_few(text.replace("if left_rows >= ROWS:", "if left_rows > 0:"), tmp_path, inputs, 3)
        beside(actual, exact(*inputs), BF16)


def gated(x, gate, up, bias, weights, rest, ends):
    """The first half of an expert; operands change along columns, along rows, and along both."""
    hidden = F.silu(F.grouped_mm(x, gate, offs=ends) + bias) * F.grouped_mm(x, up, offs=ends)
    return hidden * weights + rest


@pytest.mark.slow
@pytest.mark.parametrize("form", and_slow("transposed"))
def test_two_products_of_the_same_rows_and_operands_are_one_kernel(form, tmp_path):
    x, gate, ends = factors(40, 136, torch.float16)
    others = ((len(ENDS), 40, 136), (136,), (300, 1), (300, 136))
    up, bias, weights, rest = (normal(*shape, dtype=torch.float16, seed=2 + at) for at, shape in enumerate(others))
    inputs = x, gate, up, bias, weights, rest, ends
    plan = planned(gated, inputs)
    assert plan.pattern == "contraction" and plan.problem.second is not None
    with emulated("sm_90a"):
        actual = run_on_few(plan.render(of_form(plan, form)), tmp_path, inputs, 3)
    hidden = F.silu(exact(x, gate, ends) + bias.double()) * exact(x, up, ends)
    wanted = hidden * weights.double() + rest.double()
    torch.testing.assert_close(actual.double(), wanted, rtol=2e-3, atol=2e-3 * float(wanted.abs().max()))


def at_other_types(x, w, ends):
    product = F.grouped_mm(x, w, offs=ends)
    return product, product.float() * 2


@pytest.mark.slow
@pytest.mark.parametrize("form", ["turns", "shared tile", "transposed"])
def test_results_of_several_types_and_lines_that_tma_cannot_address(form, tmp_path):
    """One kernel for weights of 200 columns, and of 203 that are copied, as their result is."""
    plan = planned(at_other_types, factors(72, 200))
    with emulated("sm_90a"):
        kernel = load(plan.render(of_form(plan, form)), tmp_path)
        for columns in (200, 203):
            inputs = factors(72, columns)
            halves, floats = (out.cpu() for out in kernel.kernel_fn(*map(move, inputs)))
            beside(halves, exact(*inputs), BF16)
            torch.testing.assert_close(floats.double(), 2 * exact(*inputs), rtol=2**-7, atol=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_wrong_ends_reach_no_other_memory(arch, tmp_path):
    """PyTorch leaves undefined what they give; the emulated GPU reports accesses outside of a tensor, and races."""
    x, w = normal(90, 16, dtype=BF16), normal(3, 16, 24, dtype=BF16, seed=1)
    plan = plan_kernel(trace_function(grouped, (x, w, torch.zeros(3, dtype=torch.int32))), arch, free_sizes=True)
    with emulated(arch):
        kernel = load(plan.render(plan.configurations(arch)[0]), tmp_path)
        for ends in ([80, 20, 500], [-5, 90, 90], [0, 0, 0]):  # some reach out, one is negative, none has rows
            actual = kernel.kernel_fn(*map(move, (x, w, torch.tensor(ends, dtype=torch.int32)))).cpu()
            first = max(ends[0], 0)
            wanted = x[:first].double() @ w[0].double()
            torch.testing.assert_close(actual[:first].double(), wanted, rtol=2**-7, atol=0.1)
            assert any(ends) or not actual.any()


def test_what_is_predicted_counts_tiles_that_groups_leave_half_empty():
    def seconds(groups: int) -> float:
        x, w = torch.empty(24576, 2048, dtype=BF16), torch.empty(groups, 2048, 2816, dtype=BF16)
        plan = planned(grouped, (x, w, torch.arange(1, groups + 1, dtype=torch.int32)))
        (first, *_) = plan.configurations()
        assert isinstance(first, HopperConfiguration)
        return plan.seconds(first)

    whole = planned(torch.matmul, (torch.empty(24576, 2048, dtype=BF16), torch.empty(2048, 2816, dtype=BF16)))
    plain = whole.seconds(whole.configurations()[0])
    assert plain <= seconds(1) < 1.05 * plain < seconds(64) < seconds(256)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ends_of_other_groups_than_matrices_and_another_k_are_refused(arch, tmp_path):
    """As PyTorch does: of ends without a matrix, the kernel would read what lies behind the matrices."""
    x, w, ends = normal(64, 64, dtype=BF16), normal(4, 64, 64, dtype=BF16), torch.tensor([8, 20, 40, 64]).int()
    more = torch.tensor([8, 20, 30, 40, 50, 64]).int()
    plan = planned(grouped, (x, w, ends))
    with emulated(arch):
        kernel_fn = load(plan.render(plan.configurations(arch)[0]), tmp_path).kernel_fn
        with pytest.raises(ValueError, match="6 groups of rows of 64; 4 matrices for rows of 64"):
            kernel_fn(*map(move, (x, w, more)))
        with pytest.raises(ValueError, match="rows of 128; 4 matrices for rows of 64"):
            kernel_fn(*map(move, (normal(64, 128, dtype=BF16), w, ends)))

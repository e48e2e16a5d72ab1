"""Both halves of one product's columns, a gate and its values, in one kernel: where they meet, and what it computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.cutting.column_halves import with_column_halves
from cutesmith.patterns.cutting.dual_products import with_dual_products
from cutesmith.patterns.match import plan_kernel
from tests.patterns.running import check_product, normal, traced

BF16 = torch.bfloat16


def gated(x, w):
    gate, up = F.linear(x, w).chunk(2, dim=-1)
    return F.silu(gate) * up


def glu(x, w, bias):
    return F.glu(F.linear(x, w, bias))


def by_rows(x, w, bias):
    hidden = x @ w.t() + bias
    half = hidden.shape[-1] // 2
    return F.gelu(hidden[..., half:], approximate="tanh") * hidden[..., :half], hidden[..., :half] > 0


def sized(*rows, depth=72, columns=48, bias=False):
    biases = [normal(2 * columns, dtype=BF16, seed=2)] if bias else []
    return normal(*rows, depth, dtype=BF16), normal(2 * columns, depth, dtype=BF16, seed=1), *biases


CASES = {
    "gated": (gated, sized(67)),
    "one sequence": (gated, sized(1, 67)),
    "sequences": (glu, sized(3, 29, bias=True)),
    "values before the gate": (by_rows, sized(2, 33, bias=True)),
}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.sampled(4)) for case in CASES])
def test_halves_are_multiplied_where_they_are_summed_up(case, arch, tmp_path):
    function, inputs = CASES[case]
    graph = with_dual_products(with_column_halves(traced(function, inputs)))
    plan = plan_kernel(graph, arch)
    assert isinstance(plan, ContractionPlan)
    assert plan.problem.second is not None
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)


def empty(*shape):
    return torch.empty(*shape, dtype=BF16, device="meta")


@pytest.mark.parametrize("rows", [(8192,), (1, 8192), (4, 2048)])
def test_a_layer_with_both_weights_in_one_is_one_launch(rows):
    plan = plan_kernel(traced(gated, (empty(*rows, 4096), empty(4096, 4096))), "sm_90a")
    assert isinstance(plan, ContractionPlan)
    assert plan.problem.n == 2048


def thirds(x, w):
    q, k, v = F.linear(x, w).chunk(3, dim=-1)
    return q * k + v


def quarters(x, w):
    hidden = F.linear(x, w)
    return hidden[..., : hidden.shape[-1] // 4] * hidden[..., -hidden.shape[-1] // 4 :]


def whole_too(x, w):
    hidden = F.linear(x, w)
    gate, up = hidden.chunk(2, dim=-1)
    return gate * up, hidden


def rows_of_it(x, w):
    hidden = F.linear(x, w)
    first, second = hidden.chunk(2, dim=0)
    return first * second


def reduced(x, w):
    gate, up = F.linear(x, w).chunk(2, dim=-1)
    return gate * up, F.linear(x, w).sum(-1)


@pytest.mark.parametrize("function", [thirds, quarters, whole_too, rows_of_it, reduced])
def test_other_parts_are_left_as_they_are(function):
    graph = traced(function, (empty(64, 32), empty(96, 32)))
    assert with_column_halves(graph) is graph


def network(x, w, down):
    """What the next product reads as a matrix."""
    gate, up = F.linear(x, w).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


@pytest.mark.parametrize("rows", [(1, 2048), (4, 512)])
def test_the_next_product_reads_what_the_gate_lets_through(rows):
    plan = plan_kernel(traced(network, (empty(*rows, 4096), empty(28672, 4096), empty(4096, 14336))), "sm_90a")
    assert [launch.plan.problem.n for launch in plan.launches] == [14336, 4096]

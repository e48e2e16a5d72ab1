"""Products of float32 for sm_90a, of three bfloat16 parts each: as exact as float32, for each major of both factors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import copied_factors, obstacles, refusals
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated_hopper, load, move, normal

SM90 = parse_arch("sm_90a").sm
TILES = Tiles(128, 64, 32, 3, parts=3)
AHEAD = replace(TILES, ahead=True)
FEW = Tiles(64, 16, 32, 3, warpgroups=1, columns=16, swapped=True, parts=3)


def plan_of(function, *inputs):
    return match(trace_function(function, inputs))


def linear_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


def scaled_linear(x, weight, scale):
    return F.linear(x, weight) * scale


def batch_plus(x, weight, residual):
    return torch.bmm(x, weight) + residual


X, W = normal(132, 100), normal(100, 68, seed=1)
CASES = {
    "n_t": (linear_gelu, (X, normal(68, 100, seed=1), normal(68, seed=2)), replace(TILES, tile_n=96)),
    "n_n": (torch.matmul, (X, W), replace(TILES, cluster_m=2)),
    "t_n": (lambda x, w: x.t() @ w, (normal(100, 132), W), TILES),
    "t_t": (lambda x, w: x.t() @ w.t(), (normal(100, 132), normal(68, 100, seed=1)), replace(TILES, cluster_n=2)),
    "split": (
        lambda x, w, residual: x @ w + residual,
        (X, normal(100, 136, seed=1), normal(132, 136, seed=2)),
        replace(TILES, tile_n=128, split=2),
    ),
    "few_rows": (linear_gelu, (normal(5, 264), normal(72, 264, seed=1), normal(72, seed=2)), replace(FEW, split=2)),
    "few_rows_n_n": (torch.matmul, (normal(5, 264), normal(264, 72, seed=1)), replace(FEW, split=2)),
    "ahead": (linear_gelu, (normal(37, 41), normal(29, 41, seed=1), normal(29, seed=2)), replace(AHEAD, stages=2)),
    "ahead_number": (scaled_linear, (X, normal(68, 100, seed=1), 0.75), replace(AHEAD, stages=2)),
    "ahead_n_n": (torch.matmul, (X, W), replace(AHEAD, tile_n=128, columns=64, cluster_m=2)),
    "ahead_t_n": (lambda x, w: x.t() @ w, (normal(100, 132), W), replace(AHEAD, tile_n=128)),
    "ahead_batches": (batch_plus, (normal(2, 72, 68), normal(2, 68, 132, seed=1), normal(1, 72, 132, seed=2)), AHEAD),
    "ahead_shared": (torch.matmul, (normal(72, 68), normal(2, 68, 132, seed=1)), AHEAD),
    "ahead_short_lines": (batch_plus, (normal(40, 7, 20), normal(40, 20, 12, seed=1), normal(1, 7, 12, seed=2)), AHEAD),
    "ahead_few_rows": (
        linear_gelu,
        (normal(5, 264), normal(72, 264, seed=1), normal(72, seed=2)),
        replace(FEW, split=2, ahead=True),
    ),
    "odd": (linear_gelu, (normal(67, 101), normal(69, 101, seed=1), normal(69, seed=2)), TILES),
    "odd_t_t": (lambda x, w: x.t() @ w.t(), (normal(101, 131), normal(67, 101, seed=1)), TILES),
    "batches": (batch_plus, (normal(2, 72, 68), normal(2, 68, 132, seed=1), normal(1, 72, 132, seed=2)), TILES),
}


def run(plan, configuration, inputs, folder):
    assert not [*obstacles(plan.problem, SM90), *refusals(plan.problem, configuration, SM90)]
    with emulated_hopper():
        (out,) = as_list(load(plan.render(configuration), folder).kernel_fn(*map(move, inputs)))
    return out.cpu()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "few_rows_n_n" else pytest.mark.slow) for name in CASES]
)
def test_a_product_is_no_further_from_float64_than_twice_pytorch_s_own(name, tmp_path):
    function, inputs, configuration = CASES[name]
    out = run(plan_of(function, *inputs), configuration, inputs, tmp_path)
    exact = function(*(x.double() if isinstance(x, torch.Tensor) else x for x in inputs))
    own = (function(*inputs).double() - exact).norm()
    assert out.dtype == torch.float32 and (out.double() - exact).norm() <= 2 * own


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [TILES, AHEAD], ids=["split", "ahead"])
def test_numbers_that_are_not_finite_or_overflow_a_part_come_out_as_in_pytorch(tiles, tmp_path):
    x, w = X.clone(), W.clone()
    x[3, 5], x[7, 2], x[20] = torch.inf, torch.nan, 0.0
    x[20, 99], w[99, 7], w[4, 9], w[50] = 3.4028234e38, 0.5, -torch.inf, 0.0
    out = run(plan_of(torch.matmul, x, w), tiles, (x, w), tmp_path)
    torch.testing.assert_close(out, (x.double() @ w.double()).float(), rtol=1e-5, atol=1e-4, equal_nan=True)


@pytest.mark.slow
def test_an_exact_sum_of_large_and_small_numbers_keeps_all_24_bits(tmp_path):
    x = torch.full((64, 32), 1.0)
    x[:, 0], x[:, 1] = 2.0**23 + 1, 2.0**-20 * (2**23 + 1)
    w = torch.zeros(32, 64)
    w[torch.arange(32), torch.arange(32)] = 1.0
    torch.testing.assert_close(run(plan_of(torch.matmul, x, w), TILES, (x, w), tmp_path), x @ w, rtol=0, atol=0)


def test_tiles_of_float32_are_proposed_and_factors_that_tma_cannot_read_are_copied():
    def problem(*inputs):
        return plan_of(torch.matmul, *(torch.empty(shape, device="meta") for shape in inputs)).problem

    found = proposals(problem((4096, 4096), (4096, 4096)), SM90)
    assert found and {(c.parts, c.tile_k, c.pingpong) for c in found} == {(3, 32, False)}
    assert found[0].ahead and not proposals(problem((16, 4096), (4096, 4096)), SM90)[0].ahead  # bytes decide there
    assert not any(obstacles(problem((64, 63), (63, 64)), SM90))
    assert [matrix.code.name for matrix in copied_factors(problem((64, 63), (63, 64)), TILES)] == ["x0"]

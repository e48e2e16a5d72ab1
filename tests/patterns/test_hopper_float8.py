"""Products of float8 for sm_90a: where the tensor cores' own sums serve, what their kernels compute."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cutesmith.devices import parse_arch
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import obstacles, refusals
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.contraction.plan import ContractionPlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_hopper, load, move, normal

SM90 = parse_arch("sm_90a").sm
E4M3, E5M2, BF16 = torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16
PROMOTED = Tiles(128, 64, 128, 3, promoted=True, columns=64)
FEW = Tiles(64, 16, 128, 3, warpgroups=1, columns=16, swapped=True, promoted=True)


def scaled_rows(x, w, rows, columns):
    return torch._scaled_mm(x, w.t(), rows, columns, out_dtype=BF16)


def scaled_fast(x, w, rows, columns):
    return torch._scaled_mm(x, w.t(), rows, columns, out_dtype=BF16, use_fast_accum=True)


def scaled_to_float32(x, w, rows, columns):
    return torch._scaled_mm(x, w.t(), rows, columns, out_dtype=torch.float32)


def whole_scale(x, w, rows, columns):
    scaled = torch._scaled_mm(x, w.t(), rows[0, 0], columns[0, 0], out_dtype=torch.float16)
    return torch.relu(scaled)


def inputs_of(m, n, k, left=E4M3, right=E4M3):
    x, w = normal(m, k).to(left), normal(n, k, seed=1).to(right)
    return x, w, normal(m, 1, seed=2).abs() + 0.5, normal(1, n, seed=3).abs() + 0.5


def plan_of(function, inputs, arch="sm_90a"):
    return plan_kernel(trace_function(function, inputs), arch)


CASES = {
    "shared": (scaled_rows, inputs_of(200, 80, 272), PROMOTED),
    "mixed": (scaled_rows, inputs_of(70, 80, 144, E5M2, E4M3), replace(PROMOTED, cluster_m=2)),
    "split": (scaled_rows, inputs_of(40, 80, 528), replace(PROMOTED, split=2)),
    "few_rows": (scaled_rows, inputs_of(5, 144, 272, E4M3, E5M2), replace(FEW, split=2)),
    "turns": (scaled_fast, inputs_of(72, 112, 272), Tiles(64, 96, 128, 3, pingpong=True)),
    "one_scale": (whole_scale, inputs_of(72, 112, 144), replace(PROMOTED, warpgroups=1, tile_m=64)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs, tiles = CASES[name]
    plan = plan_of(function, inputs)
    assert not [*obstacles(plan.problem, SM90), *refusals(plan.problem, tiles, SM90)]
    with emulated_hopper():
        found = load(plan.render(tiles), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    x, w, rows, columns = (each.double() for each in inputs)
    scales = (rows, columns) if function is not whole_scale else (rows[0, 0], columns[0, 0])
    exact = x @ w.t() * scales[0] * scales[1]
    exact = exact.relu() if function is whole_scale else exact
    error = (found.double() - exact).norm() / exact.norm()
    assert error < torch.finfo(found.dtype).eps * (1.0 if tiles.promoted else 2.0)


@pytest.mark.parametrize(
    ("function", "arch", "inputs"),
    [
        (scaled_to_float32, "sm_90a", inputs_of(64, 64, 64)),
        (scaled_rows, "sm_89", inputs_of(64, 64, 64)),
        (
            lambda x, *rest: scaled_rows(x[:, 8:], *rest),
            "sm_90a",
            (inputs_of(64, 64, 72)[0], *inputs_of(64, 64, 64)[1:]),
        ),
    ],
    ids=["to_float32", "other_gpu", "unaligned"],
)
def test_float8_becomes_float16_where_its_sums_or_lines_do_not_serve(function, arch, inputs):
    plan = plan_of(function, inputs, arch)
    assert not isinstance(plan, ContractionPlan)
    assert any(launch.plan.pattern == "contraction" for launch in plan.launches)


def test_fast_sums_are_for_functions_that_ask_for_them():
    inputs = inputs_of(64, 64, 64)
    strict, fast = plan_of(scaled_rows, inputs).problem, plan_of(scaled_fast, inputs).problem
    assert all(c.promoted and not c.pingpong and c.tile_k == 128 for c in proposals(strict, SM90))
    assert {c.promoted for c in proposals(fast, SM90, most=100)} == {True, False}
    (message,) = refusals(strict, replace(PROMOTED, promoted=False), SM90)
    assert "short" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    "inputs", [inputs_of(0, 64, 64), (inputs_of(64, 64, 72)[0][:, 8:], *inputs_of(64, 64, 64)[1:])]
)
def test_the_kernel_serves_what_tma_cannot_address(inputs, tmp_path):
    plan = plan_of(scaled_rows, inputs_of(64, 64, 64))
    with emulated_hopper():
        found = load(plan.render(PROMOTED), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    x, w, rows, columns = (each.double() for each in inputs)
    torch.testing.assert_close(found.double(), x @ w.t() * rows * columns, rtol=1e-2, atol=0.2)


def test_a_scale_of_the_result_is_refused():
    def scaled(x, w, rows, columns, result):
        return torch._scaled_mm(x, w.t(), rows, columns, scale_result=result, out_dtype=BF16)

    x, w = (torch.empty(n, 128, dtype=torch.float8_e4m3fn, device="meta") for n in (64, 96))
    rows, columns, result = (torch.empty(shape, device="meta") for shape in ((64, 1), (1, 96), ()))
    with pytest.raises(UnmatchedError, match="scales its result"):
        trace_function(scaled, (x, w, rows, columns, result))

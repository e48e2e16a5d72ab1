"""Products of float8 and tf32 for sm_100a: what their kernels compute on the emulated GPU, and where they serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration as Tiles
from cutesmith.patterns.contraction.blackwell.legality import obstacles, refusals
from cutesmith.patterns.contraction.configurations import ContractionConfiguration
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_blackwell, load, move, normal
from tests.patterns.test_hopper_float8 import E4M3, E5M2, inputs_of, scaled_rows, scaled_to_float32, whole_scale
from tests.patterns.test_hopper_tf32 import as_tf32

SM100 = parse_arch("sm_100a").sm
TF32, FLOAT8 = Tiles(128, 128, 32, 3), Tiles(128, 128, 128, 3)


def linear_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


LINEAR = normal(132, 100), normal(136, 100, seed=1), normal(136, seed=2)
TF32_CASES = {
    "linear": (linear_gelu, LINEAR, TF32),
    "pair": (linear_gelu, (normal(260, 100), *LINEAR[1:]), Tiles(256, 128, 32, 3, pair=True)),
    "both_transposed": (lambda x, w: x.t() @ w.t(), (normal(100, 132), normal(136, 100, seed=1)), TF32),
    "b_by_rows": (torch.matmul, (normal(132, 100), normal(100, 136, seed=1)), Tiles(256, 64, 32, 3, pair=True)),
    "few_rows": (linear_gelu, (normal(5, 100), *LINEAR[1:]), replace(TF32, tile_n=16, columns=16, swapped=True)),
    "odd": (linear_gelu, (normal(67, 101), normal(69, 101, seed=1), normal(69, seed=2)), TF32),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TF32_CASES)
def test_products_of_tf32(name, tmp_path):
    function, inputs, tiles = TF32_CASES[name]
    plan = match(with_tf32(trace_function(function, inputs)))
    assert not [*obstacles(plan.problem, SM100), *refusals(plan.problem, tiles, SM100)]
    with emulated_blackwell():
        found = load(plan.render(tiles), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    rounded = [as_tf32(value) for value in inputs[:2]] + [value.double() for value in inputs[2:]]
    expected = function(*rounded)
    assert (found - expected).norm() < 1e-6 * expected.norm()  # numbers that are cut off would be 3e-4 away


PARTS = Tiles(128, 64, 32, 3, accumulators=4, parts=3)
EXACT_CASES = {
    "linear": (linear_gelu, LINEAR, PARTS),
    "pair": (torch.matmul, (normal(260, 100), normal(100, 136, seed=1)), replace(PARTS, tile_m=256, pair=True)),
    "both_transposed": (lambda x, w: x.t() @ w.t(), (normal(100, 132), normal(136, 100, seed=1)), PARTS),
    "few_rows_batches": (
        torch.bmm,
        (normal(2, 5, 100), normal(2, 100, 136, seed=1)),
        replace(PARTS, tile_n=16, columns=16, swapped=True),
    ),
    "odd": (linear_gelu, (normal(67, 101), normal(69, 101, seed=1), normal(69, seed=2)), PARTS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT_CASES)
def test_exact_products_of_float32(name, tmp_path):
    function, inputs, tiles = EXACT_CASES[name]
    plan = match(trace_function(function, inputs))
    assert not [*obstacles(plan.problem, SM100), *refusals(plan.problem, tiles, SM100)]
    with emulated_blackwell():
        found = load(plan.render(tiles), tmp_path).kernel_fn(*map(move, inputs)).cpu()
    expected = function(*(value.double() for value in inputs))
    assert (found - expected).norm() < 1.5e-7 * expected.norm()


@pytest.mark.slow
def test_infinite_and_huge_numbers_have_no_parts(tmp_path):
    x, w = normal(40, 100), normal(100, 136, seed=1)
    x[3, 5], x[7, 9], w[2, 130], x[9, 0] = float("inf"), float("nan"), float("-inf"), 3.4e38
    plan = match(trace_function(torch.matmul, (x, w)))
    with emulated_blackwell():
        found = load(plan.render(PARTS), tmp_path).kernel_fn(move(x), move(w)).cpu()
    torch.testing.assert_close(found, x @ w, rtol=1e-5, atol=1e-4, equal_nan=True)


FLOAT8_CASES = {
    "rows": (scaled_rows, inputs_of(200, 80, 272), FLOAT8),
    "mixed": (scaled_rows, inputs_of(260, 80, 144, E5M2, E4M3), Tiles(256, 128, 128, 3, pair=True)),
    "few_rows": (scaled_rows, inputs_of(5, 144, 272, E4M3, E5M2), replace(FLOAT8, tile_n=16, columns=16, swapped=True)),
    "one_scale": (whole_scale, inputs_of(72, 112, 144), replace(FLOAT8, tile_n=96)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOAT8_CASES)
def test_products_of_float8(name, tmp_path):
    function, inputs, tiles = FLOAT8_CASES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_100a")
    assert not [*obstacles(plan.problem, SM100), *refusals(plan.problem, tiles, SM100)]
    source = plan.render(tiles)
    with emulated_blackwell():
        found = load(source, tmp_path).kernel_fn(*map(move, inputs)).cpu()
    x, w, rows, columns = (value.double() for value in inputs)
    if function is whole_scale:
        rows, columns = rows[0, 0], columns[0, 0]
    expected = x @ w.t() * rows * columns
    expected = (expected.relu() if function is whole_scale else expected).to(found.dtype)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


def test_exact_float32_has_parts_where_splitting_pays():
    for size, expected in ((4096, Tiles), (64, ContractionConfiguration)):
        inputs = torch.empty(size, size, device="meta"), torch.empty(size, size, device="meta")
        exact = match(trace_function(torch.matmul, inputs))
        first = exact.configurations("sm_100a")[0]
        assert isinstance(first, expected)
        assert not isinstance(first, Tiles) or first.parts == 3
        assert match(with_tf32(exact.graph)).configurations("sm_100a")[0].parts == 1


def test_exact_sums_of_float8_have_another_form():
    of_float32 = plan_kernel(trace_function(scaled_to_float32, inputs_of(200, 80, 272)), "sm_100a")
    assert isinstance(of_float32, ChainPlan)  # a launch converts the factors to float16, whose products are exact


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"tile_n": 16, "columns": 16}, "in lines of 128 bytes"),
        ({"tile_m": 256, "pair": True, "tile_n": 96}, "aborts at 48 lines"),
    ],
)
def test_tf32_lies_along_n_in_whole_lines(change, message):
    plan = match(with_tf32(trace_function(torch.matmul, (normal(64, 64), normal(64, 64)))))
    found = list(refusals(plan.problem, replace(TF32, **change), SM100))
    assert any(message in each for each in found) if message else not found

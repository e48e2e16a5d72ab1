"""Products and convolutions of tf32 for sm_90a: wgmma of numbers that TMA has rounded, of factors of any layout."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.devices import parse_arch
from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.faults import FaultKind
from cutesmith.patterns.contraction.analysis import by_windows
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration as Tiles
from cutesmith.patterns.contraction.hopper.legality import copied_factors, obstacles, refusals, turned_factors
from cutesmith.patterns.contraction.hopper.prediction import predict
from cutesmith.patterns.contraction.hopper.proposals import proposals
from cutesmith.patterns.contraction.plan import HOPPER, match
from cutesmith.patterns.cutting.rewriting import with_tf32
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_hopper, load, move, normal
from tests.patterns.test_hopper_convolutions import (
    FLOAT32,
    GROUPED_FLOAT32,
    LINE_FLOAT32,
    SOLID_FLOAT32,
    TURNED_FLOAT32,
    grouped,
    line,
    solid,
    strided,
    turned,
    weights,
)

SM90 = parse_arch("sm_90a").sm
TILES = Tiles(128, 64, 32, 3)
FEW = Tiles(64, 16, 64, 3, warpgroups=1, columns=16, swapped=True)
WINDOWS = replace(TILES, swapped=True)


def linear_gelu(x, weight, bias):
    return F.gelu(F.linear(x, weight, bias))


def points(x, w, b):
    return F.relu(F.conv2d(x, w, b))


X, W = normal(132, 100), normal(100, 136, seed=1)
LINEAR = X, normal(68, 100, seed=1), normal(68, seed=2)
IMAGE = normal(2, 24, 9, 11), weights(40, 24, 3, 3, dtype=torch.float32), normal(40)
LAST = IMAGE[0].to(memory_format=torch.channels_last), *IMAGE[1:]
POINTS = normal(3, 36, 7, 8), weights(40, 36, 1, 1, dtype=torch.float32), normal(40)


def padded(x, w, b):
    return F.relu(F.conv2d(x, w, b, padding=1))


def mish_twice(x, weight, bias):
    return F.mish(F.mish(F.linear(x, weight, bias)))


def mish_of_windows(x, w, b):
    return F.mish(F.mish(F.conv2d(x, w, b, padding=1)))


def meta(*shape):
    return torch.empty(shape, device="meta")


FEW_OUTPUTS = normal(2, 8, 19, 16), weights(24, 8, 3, 3, dtype=torch.float32), normal(24)
CASES = {
    "linear": (linear_gelu, LINEAR, replace(TILES, tile_n=96)),
    "turns": (linear_gelu, LINEAR, replace(TILES, tile_n=128, pingpong=True, cluster_m=2)),
    "right_in_registers": (torch.matmul, (X, W), replace(TILES, swapped=True, cluster_m=2, columns=64)),
    "left_in_registers": (lambda x, w: x.t() @ w.t(), (normal(100, 132), normal(68, 100, seed=1)), TILES),
    "turns_in_registers": (
        lambda x, w, b: F.relu(x @ w + b),
        (X, normal(100, 264, seed=1), normal(264, seed=2)),
        replace(TILES, swapped=True, pingpong=True),
    ),
    "right_turned": (torch.matmul, (X, W), replace(TILES, tile_n=128, cluster_n=2)),
    "left_turned": (lambda x, w: x.t() @ w.t(), (normal(100, 132), normal(68, 100, seed=1)), WINDOWS),
    "right_turned_left_in_registers": (
        lambda x, w: x.t() @ w,
        (normal(100, 132), W),
        replace(TILES, tile_m=256, stages=2, split=2),
    ),
    "few_rows_right_in_registers": (torch.matmul, (normal(5, 264), normal(264, 72, seed=1)), replace(FEW, split=2)),
    "odd": (linear_gelu, (normal(67, 101), normal(69, 101, seed=1), normal(69, seed=2)), replace(TILES, tile_k=64)),
    "odd_turned": (torch.matmul, (normal(67, 101), normal(101, 69, seed=1)), TILES),
    "few_rows": (linear_gelu, (normal(5, 264), normal(72, 264, seed=1), normal(72, seed=2)), replace(FEW, split=2)),
    "batches": (
        lambda x, w, residual: torch.bmm(x, w) + residual,
        (normal(2, 72, 68), normal(2, 68, 132, seed=1), normal(1, 72, 132, seed=2)),
        TILES,
    ),
    "left_batches": (lambda x, w: torch.bmm(x.mT, w), (normal(3, 68, 72), normal(3, 68, 132, seed=1)), TILES),
    "channels_last": (padded, LAST, WINDOWS),
    "cluster": (padded, IMAGE, replace(WINDOWS, tile_n=128, cluster_m=2, pingpong=True)),
    "strided": (strided, FLOAT32, replace(WINDOWS, split=2)),
    "joined": (strided, FLOAT32, replace(WINDOWS, joined=True, split=2)),
    "few_channels": (padded, (normal(2, 8, 9, 16), *(x for x in (weights(24, 8, 3, 3).float(), normal(24)))), WINDOWS),
    "few_outputs": (padded, FEW_OUTPUTS, replace(WINDOWS, tile_m=256, tile_n=32, tile_k=8)),
    "few_outputs_in_turns": (
        padded,
        FEW_OUTPUTS,
        replace(WINDOWS, tile_m=192, tile_n=32, tile_k=8, pingpong=True),
    ),
    "points": (points, POINTS, TILES),
    "points_joined": (points, POINTS, replace(WINDOWS, joined=True)),
    "line": (line, LINE_FLOAT32, WINDOWS),
    "solid": (solid, SOLID_FLOAT32, replace(WINDOWS, tile_k=16)),
    "turned": (turned, TURNED_FLOAT32, WINDOWS),
    "grouped": (grouped, GROUPED_FLOAT32, replace(WINDOWS, split=2)),
    "long_function": (mish_twice, LINEAR, replace(TILES, tile_m=256, tile_n=128, columns=64, stages=2)),
    "long_function_in_turns": (mish_of_windows, IMAGE, replace(WINDOWS, tile_m=192, tile_n=128, pingpong=True)),
}


def as_tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounded to 11 significant bits, ties to even, in float64."""
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


def plan_of(function, inputs):
    return match(with_tf32(trace_function(function, inputs)))


def source_of(plan, configuration):
    problem = plan.problem_for(configuration)
    assert not [*obstacles(problem, SM90), *refusals(problem, configuration, SM90)]
    return plan.render(configuration)


def error_of(source, function, inputs, folder) -> float:
    """Norm over norm, against float64 with both factors rounded to tf32."""
    with emulated_hopper():
        out = load(source, folder).kernel_fn(*map(move, inputs)).cpu()
    exact = function(*map(as_tf32, inputs[:2]), *(x.double() for x in inputs[2:]))
    assert out.dtype == torch.float32 and out.shape == exact.shape
    return float((out - exact).norm() / exact.norm())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs, configuration = CASES[name]
    source = source_of(plan_of(function, inputs), configuration)
    assert error_of(source, function, inputs, tmp_path) < 1e-6


@pytest.mark.parametrize("name", ["long_function", "long_function_in_turns"])
def test_a_function_whose_code_for_all_sums_is_too_long_is_a_loop(name):
    function, inputs, tiles = CASES[name]
    looped = source_of(plan_of(function, inputs), tiles)
    assert "for row in cutlass.range(ROWS // 32, unroll=1)" in looped
    assert looped.count("own[at] = epilogue(") == 1 and "sums[v] = epilogue(" not in looped
    plain = source_of(
        plan_of(function, inputs), replace(tiles, tile_m=64, tile_n=32, columns=32, pingpong=False, warpgroups=1)
    )
    assert "sums[v] = epilogue(" in plain and "own[at]" not in plain


@pytest.mark.slow
def test_numbers_are_rounded_by_tma_and_would_be_cut_off_without_that(tmp_path):
    inputs = normal(72, 36), normal(40, 36, seed=1), normal(40, seed=2)
    source = source_of(plan_of(linear_gelu, inputs), TILES)
    assert source.count(", internal_type=TFloat32") == 2
    assert error_of(source, linear_gelu, inputs, tmp_path) < 1e-6
    cut_off = error_of(source.replace(", internal_type=TFloat32", ""), linear_gelu, inputs, tmp_path)
    assert 5e-4 < cut_off < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_one_kernel_serves_other_sizes_and_layouts(swapped, tmp_path):
    inputs = normal(132, 100), normal(100, 136, seed=1)
    source = source_of(plan_of(torch.matmul, inputs), replace(TILES, swapped=swapped))
    for x, w in (
        (normal(70, 65), normal(65, 33, seed=1)),
        (normal(36, 20).t(), normal(36, 44, seed=1)),
        (normal(64, 64)[:, ::2], normal(70, 32, seed=1).t()),
        (normal(1, 4), normal(4, 1, seed=1)),
    ):
        assert error_of(source, torch.matmul, (x, w), tmp_path) < 1e-6
    with emulated_hopper():
        nothing = load(source, tmp_path).kernel_fn(move(normal(3, 0)), move(normal(0, 5)))
    assert nothing.tolist() == [[0.0] * 5] * 3


@pytest.mark.slow
def test_registers_are_read_by_all_lanes_before_one_releases_the_stage(tmp_path):
    x, w = normal(132, 164), normal(164, 68, seed=1)
    source = source_of(plan_of(torch.matmul, (x, w)), replace(TILES, swapped=True))
    (wait,) = (text for text in source.splitlines() if "one lane releases what all have read" in text)
    with emulated_device("sm_90a") as device:
        load(source.replace(wait, ""), tmp_path).kernel_fn(move(x), move(w))
    assert [found.kind for found in device.findings] == [FaultKind.RACE]


@pytest.mark.slow
def test_numbers_that_are_not_finite(tmp_path):
    x, w = X.clone(), W.clone()
    x[3, 5], x[7, 2], x[20] = torch.inf, torch.nan, 0.0
    w[4, 9], w[50] = -torch.inf, 0.0
    with emulated_hopper():
        out = load(source_of(plan_of(torch.matmul, (x, w)), TILES), tmp_path).kernel_fn(move(x), move(w)).cpu()
    torch.testing.assert_close(out.double(), as_tf32(x) @ as_tf32(w), rtol=1e-5, atol=1e-4, equal_nan=True)


def test_no_tile_has_lines_of_float32_at_which_the_dsl_aborts():
    problem = plan_of(torch.matmul, (X, W)).problem
    (why,) = refusals(problem, replace(TILES, tile_n=208, columns=16), SM90)
    assert "the DSL 4.8.1 aborts" in why
    assert not [*refusals(problem, replace(TILES, tile_n=16, columns=16), SM90)]


def test_factors_in_registers_count_beside_the_sums():
    problem = plan_of(torch.matmul, (X, normal(100, 264, seed=1))).problem
    tiles = Tiles(128, 192, 32, 3, pingpong=True, swapped=True)
    assert ["224 registers" in why for why in refusals(problem, tiles, SM90)] == [True]
    assert not [*refusals(problem, replace(tiles, tile_n=128), SM90)]


def test_channels_beyond_the_image_s_are_predicted_to_take_time():
    seconds = []
    for channels in (8, 6):
        inputs = meta(64, channels, 64, 64), meta(64, channels, 3, 3)
        seconds.append(predict(plan_of(F.conv2d, inputs).problem, replace(WINDOWS, tile_k=8, stages=10)).seconds)
    assert seconds[1] > 1.1 * seconds[0]


def test_tf32_is_proposed_where_pytorch_allows_it_alone():
    plan = match(trace_function(lambda x, w: x @ w.t(), (meta(4096, 4096), meta(4096, 4096))))
    assert [*refusals(plan.problem, TILES, SM90)] == ["PyTorch's flags do not allow numbers rounded to tf32"]
    allowed = plan_of(lambda x, w: x @ w.t(), (meta(4096, 4096), meta(4096, 4096))).problem
    found = proposals(allowed, SM90)
    assert {c.parts for c in found} == {1} and {c.tile_k for c in found} == {32} and any(c.pingpong for c in found)


@pytest.mark.parametrize(
    ("function", "shapes", "turned"),
    [
        (lambda x, w: x @ w.t(), ((4096, 4096), (4096, 4096)), []),
        (torch.matmul, ((4096, 4096), (4096, 4096)), []),
        (lambda x, w: x.t() @ w.t(), ((4096, 4096), (4096, 4096)), []),
        (lambda x, w: x.t() @ w, ((4096, 1024), (4096, 8192)), ["left_in"]),
        (lambda x, w: x.t() @ w, ((4096, 8192), (4096, 1024)), ["right"]),
        (torch.matmul, ((16, 8192), (8192, 8192)), []),
    ],
)
def test_of_two_factors_that_do_not_lie_along_k_the_smaller_one_is_turned(function, shapes, turned):
    def named(left, right):
        return function(left, right)

    problem = plan_of(named, [meta(*shape) for shape in shapes]).problem
    first = proposals(problem, SM90)[0]
    assert [side.code.name for side in turned_factors(problem, first)] == turned
    assert [side.code.name for side in copied_factors(problem, first)] == turned


def test_weights_of_windows_that_lie_along_the_outputs_are_turned_as_weights():
    weights = normal(32, 64, 1, 1, seed=1).transpose(0, 1)
    plan = match(with_tf32(trace_function(F.conv2d, [normal(2, 32, 8, 9), weights])))
    windowed = by_windows(plan.problem)
    joined = replace(proposals(windowed, HOPPER)[0], joined=True)
    assert windowed.a.contiguous == -2 and turned_factors(windowed, joined) == []
    assert "launch_turn(factor: cute.Tensor, copy: cute.Tensor, wide: cutlass.Constexpr, stream)" in plan.render(joined)


def test_a_transposed_convolution_that_does_not_stride_sums_nothing_again():
    inputs = [normal(2, 64, 8, 9), normal(128, 64, 3, 3, seed=1).transpose(0, 1)]
    plan = match(with_tf32(trace_function(lambda x, w: F.conv_transpose2d(x, w), inputs)))
    assert plan.problem.windows.is_transposed
    assert "plain_sum" not in plan.render(proposals(plan.problem, HOPPER)[0])


@pytest.mark.parametrize("outputs", [16, 24])
def test_windows_of_few_outputs_have_narrow_tiles(outputs):
    inputs = meta(64, 8, 130, 130), meta(outputs, 8, 3, 3)
    assert proposals(plan_of(F.conv2d, inputs).problem, SM90)[0].tile_n == 32


def test_many_sums_a_thread_are_refused_where_each_would_be_made_again():
    inputs = [normal(2, 64, 8, 9), normal(128, 64, 3, 3, seed=1).transpose(0, 1)]
    rounded, halves = (
        match(with_tf32(trace_function(F.conv_transpose2d, [x.to(dtype) for x in inputs])))
        for dtype in (torch.float32, torch.float16)
    )
    large = replace(
        proposals(rounded.problem, HOPPER)[0], tile_m=192, tile_n=128, pingpong=True, columns=32, cluster_m=1
    )
    assert large.sums_per_thread == 192
    again = "192 sums a thread, with code to make each again"
    assert not any(again in wrong for wrong in refusals(rounded.problem, large, SM90))
    assert any(again in wrong for wrong in refusals(halves.problem, large, SM90))

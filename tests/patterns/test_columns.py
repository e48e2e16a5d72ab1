"""Reductions over dimensions that are not the last: what their kernels compute on the emulated GPU, against float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.columns.configuration import ColumnsConfiguration
from cutesmith.patterns.columns.plan import match
from cutesmith.patterns.columns.spread import spread_columns, widest_lanes
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.patterns.running import as_list, like, load, move, normal

TOLERANCE = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 1e-5, torch.float64: 1e-12}
X = normal(4, 33, 20)
IMAGES = normal(3, 6, 5, 8)
HALVES = normal(3, 40, 64, dtype=torch.bfloat16)
CHANNELS = normal(6, seed=1), normal(6, seed=2).abs()
ODD = X.clone()
ODD[0, 3, 5], ODD[1, :, 2], ODD[2, 7, :4], ODD[3, 1:9, 0] = math.nan, -math.inf, math.inf, 7.0


def moved_statistics(x, mean, variance):
    mean, variance = mean.clone(), variance.clone()
    y = F.batch_norm(x, mean, variance, training=True, momentum=0.3)
    return y, mean, variance


def normed_channels(x, w, b):
    return F.layer_norm(x.permute(0, 2, 3, 1), (6,), w, b).permute(0, 3, 1, 2)


def softmax(x):
    return x.softmax(1)


def normed_last(x):
    return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2])


def turned(x):
    x = x.permute(0, 2, 1)
    return x.softmax(-1), x > x.amax(-1, keepdim=True) * 0.5, x.float() * 2


def sum_beside_its_last_row(x):
    last = torch.zeros_like(x[0])
    last[..., -1] = 1
    return x.sum(0), last


CASES = {
    "sum": (lambda x: x.sum(1), [X], "columns"),
    "softmax": (softmax, [HALVES], "columns"),
    "extremes": (lambda x: (*x.min(1), x.argmax(1, keepdim=True), x.softmax(1)), [ODD], "columns"),
    "operands": (lambda x, w, s: (x * w[:, None] + s).var(1), [X, normal(33), normal(4, 1, 20)], "columns"),
    "permuted": (lambda x, w: F.layer_norm(x.permute(0, 2, 3, 1), (6,), w), [IMAGES, CHANNELS[0]], "columns"),
    "turned": (turned, [HALVES], "columns"),
    "permuted back": (normed_channels, [IMAGES, CHANNELS[0], CHANNELS[1]], "columns"),
    "batch of vectors": (moved_statistics, [normal(30, 6), *CHANNELS], "columns"),
    "float64": (lambda x: x.log_softmax(0), [X.double()], "columns"),
    "no vectors": (lambda x: x.mean(1), [normal(2, 9, 7, dtype=torch.bfloat16)], "columns"),
    "not adjacent": (lambda x, w: (x - x.mean((0, 2), keepdim=True)) * w[None, :, None], [X, normal(33)], "rows"),
    "transposed": (lambda x: x.transpose(0, 1).var(0), [normal(16, 24)], "rows"),
    "moved statistics": (moved_statistics, [IMAGES, *CHANNELS], "rows"),
    "rows are counted": (sum_beside_its_last_row, [normal(9, 13)], "columns"),
    "reduced twice": (lambda x: x.amax(3).sum(1), [IMAGES], "cut"),
    "different shapes": (lambda x: (x.sum(1), x.amax(-1)), [X], "cut"),
}


def check(source, function, calls, folder):
    """The kernel's outputs on the emulated GPU are those of the function in float64."""
    with emulated_device("sm_90a"):
        kernel_fn = load(source, folder).kernel_fn
        results = [[out.cpu() for out in as_list(kernel_fn(*map(move, inputs)))] for inputs in calls]
    for outs, inputs in zip(results, calls, strict=True):
        exact = as_list(function(*(x.double() for x in inputs)))
        for ours, theirs, expected in zip(outs, as_list(function(*inputs)), exact, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            tolerance = TOLERANCE.get(ours.dtype, 0)
            torch.testing.assert_close(ours.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


SLOW = ("operands", "batch of vectors", "no vectors", "not adjacent", "different shapes")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES])
def test_kernels_compute_what_pytorch_does(name, tmp_path):
    function, inputs, pattern = CASES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert plan.pattern == pattern
    check(plan.render(plan.configurations()[0]), function, [inputs], tmp_path)


SPREADS = {
    "read again": ColumnsConfiguration(vector=4, lanes=8, threads=32, max_threads=32, resident_elements=4, reload_elements=8),  # noqa: E501
    "wide lanes": ColumnsConfiguration(vector=2, lanes=64, threads=256, hints="last"),
    "one part": ColumnsConfiguration(vector=4, threads=32, max_threads=32, resident_elements=256, hints="stream"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SPREADS)
def test_every_way_to_spread_rows_computes_the_same(name, tmp_path):
    function = lambda x: (x.softmax(1), x.var(1), x.amax(1))  # noqa: E731
    x = normal(2, 45, 24) * 3 + 5
    calls = [[x], [normal(1, 64, 128)], [x[:, ::3, 1:18]]]
    check(match(trace_function(function, [x])).render(SPREADS[name]), function, calls, tmp_path)


@pytest.mark.parametrize("hints", ["last", "keep", "stream"])
def test_vectors_of_one_element_are_read_with_any_hint(hints, tmp_path):
    function = lambda x, w: (x * w).sum(0)  # noqa: E731
    inputs = [normal(5, 3, 8), normal(5, 3, 1).expand(5, 3, 8)]  # a copy with a hint takes neighbours only
    source = match(trace_function(function, inputs)).render(ColumnsConfiguration(vector=4, hints=hints))
    check(source, function, [inputs, [inputs[0], normal(5, 3, 8)]], tmp_path)


@pytest.mark.slow
def test_one_kernel_file_takes_other_sizes_and_layouts(tmp_path):
    calls = [[X], [normal(1, 5, 1)], [normal(3, 2, 64)], [normal(20, 33, 4).transpose(0, 2)]]
    plan = match(trace_function(softmax, [X]))
    check(plan.render(plan.configurations()[0]), softmax, calls, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPREADS)
def test_results_turn_at_any_size(name, tmp_path):
    calls = [[HALVES], [normal(2, 45, 24, dtype=torch.bfloat16)], [normal(1, 64, 7, dtype=torch.bfloat16)]]
    check(match(trace_function(turned, [HALVES])).render(SPREADS[name]), turned, calls, tmp_path)


def sum_of_first(x):
    return x.sum(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "shape", "blocks"),
    [(softmax, (64, 512, 4096), 4096), (sum_of_first, (16384, 4096), 128), (normed_last, (16, 192, 56, 56), 784)],
)  # fmt: skip
def test_loads_are_16_bytes_a_lane_and_nothing_spills(function, shape, blocks, tmp_path):
    x = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    plan = match(trace_function(function, [x]))
    configuration = plan.configurations()[0]
    with session("sm_90a") as recorded:
        load(plan.render(configuration), tmp_path).kernel_fn(like(x))
    (kernel,), (launch,) = read_ptx(recorded.modules[0].ptx).values(), recorded.launches
    compiled = launch.compiled
    assert (kernel.widest_load_bits, kernel.widest_store_bits) == (128, 128)
    assert (compiled.stack_bytes, compiled.local_loads, compiled.local_stores) == (0, 0, 0)
    assert launch.grid == (blocks, 1, 1) and launch.block[0] == plan.tiling(configuration).threads


def test_a_kernel_plans_as_its_tiling_says(tmp_path):
    for function in (softmax, lambda x: x.sum(1)):
        plan = match(trace_function(function, [X]))
        again = function is softmax
        for configuration in plan.configurations():
            module = load(plan.render(configuration), tmp_path)
            enough = widest_lanes(math.prod(X.shape[::2]), configuration.vector)
            for columns, neighbours in [(33, 5), (4096, 1024), (16384, 512), (1, 1), (64, 70000)]:
                for vector in (1, 2, 4):
                    planned = module.plan_columns(columns, neighbours, vector)
                    spread = spread_columns(columns, neighbours, vector, enough, configuration, again=again)
                    assert {name: getattr(planned, name) for name in vars(spread)} == vars(spread)
                    assert planned.parts * planned.chunks * planned.blocks >= columns
                    assert 32 <= spread.threads <= 1024 and planned.groups <= 32 and spread.threads % 32 == 0


@pytest.mark.slow
@pytest.mark.parametrize("function", [softmax, lambda x: x.sum(1)])
def test_fewer_rows_take_the_code_of_the_many_that_a_kernel_was_written_for(function, tmp_path):
    many = torch.empty(16384, 64, 64, device="meta")
    plan = match(trace_function(function, [many]))
    assert plan.tiling(plan.configurations()[0]).tile == (64, 64)  # 16 lanes: of 16 matrices alone there would be 4
    module = load(plan.render(plan.configurations()[0]), tmp_path)
    with session("sm_90a") as recorded:
        for count in (16384, 16):
            module.kernel_fn(like(torch.empty(count, 64, 64, device="meta")))
    assert [(launch.grid, launch.block) for launch in recorded.launches] == [
        ((n, 1, 1), (128, 1, 1)) for n in (16384, 16)
    ]


def test_lanes_are_the_fewer_the_fewer_rows_there_are():
    assert [widest_lanes(rows, 4) for rows in (0, 1055, 1056, 2111, 2112, 1 << 30)] == [0, 0, 1, 1, 2, 1024]


@pytest.mark.slow
def test_rows_that_are_not_aligned_have_blocks_as_wide_as_others(tmp_path):
    function = lambda x: x.sum(1)  # noqa: E731
    x = normal(9, 8, 4095)
    plan = match(trace_function(function, [x]))
    source = plan.render(plan.configurations()[0])
    with session("sm_90a") as recorded:
        load(source, tmp_path).kernel_fn(like(torch.empty(9, 4096, 4095, device="meta")))
    (launch,) = recorded.launches
    assert (launch.grid, launch.block) == ((9 * 32, 1, 1), (1024, 1, 1))  # 128 sums of 4 bytes, by 8 threads each
    check(source, function, [[x]], tmp_path)


@pytest.mark.parametrize("function", [lambda x: x.sum(-1), lambda x: x.transpose(0, 2).sum(0), lambda x: x * 2])
def test_what_lies_along_rows_is_left_to_other_patterns(function):
    with pytest.raises(UnmatchedError):
        match(trace_function(function, [X]))


def test_loads_of_columns_that_are_several_dimensions_are_counted():
    """Divisions find their places, in many times the instructions of a sum."""
    x = torch.zeros(8, 64, 8, 64)
    one, several = (match(trace_function(lambda x, dims=dims: x.sum(dims), (x,))) for dims in ((0, 1), (0, 2)))
    assert 0 < 4 * one.warp_instructions < several.warp_instructions

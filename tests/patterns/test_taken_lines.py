"""Reductions of lines that an index names: one launch, against float64 on the emulated GPU."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.columns.configuration import ColumnsConfiguration
from cutesmith.patterns.columns.plan import match
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.patterns.running import as_list, like, load, move, normal

TABLE = normal(50, 24)
TABLE[3] = math.nan  # a line that no index names
HALVES = normal(40, 16, dtype=torch.bfloat16)
POINTS = normal(2, 30, 8)
TOLERANCE = {torch.bfloat16: 2**-7, torch.float32: 1e-5}


def numbers(*shape: int, below: int = 50, dtype: torch.dtype = torch.int64, seed: int = 0) -> torch.Tensor:
    """Of lines, none of which is the third."""
    found = torch.randint(4, below, shape, generator=torch.Generator().manual_seed(seed))
    return found.to(dtype)


def bags(table, ids):
    return table[ids].sum(1)


def weighed(table, ids, weight):
    return (table[ids] * weight[..., None]).mean(1, keepdim=True)


def padded(table, ids):
    kept = (ids != 7)[..., None]
    return torch.where(kept, table[ids], -math.inf).amax(1), torch.where(kept, table[ids], 0).sum(1) / kept.sum(1)


def attended(table, ids, scores):
    x = table[ids] * scores[..., None]
    return (x.softmax(1) * table[ids]).sum(1)


def neighbours(x, ids):
    """The largest features of each point's neighbours, as in point clouds."""
    batch = torch.arange(x.shape[0])[:, None, None]
    return x[batch, ids].amax(2) - x.relu()


def pairs(a, b, i, j):
    return (a[i].float() * b[j].relu()).sum(1)


def first_below_its_last_line(x):
    filled = torch.full_like(x, 2)
    filled[:1] = x[-1:]
    return filled > filled.argmin(0)


def line_and_more(x):
    """One line, which all columns read, without and with 1."""
    rows = x.repeat(3, 1)
    rows[1] += 1
    return (rows * x).softmax(0).amax(0)


def heads(table, ids):
    return table.view(50, 3, 8)[ids].argmax(1)


def bag(mode: str, **settings):
    return lambda table, ids: F.embedding_bag(ids, table, mode=mode, **settings)


CASES = {
    "means of bags": (bag("mean"), [TABLE, numbers(7, 10)]),
    "means without padding": (bag("mean", padding_idx=5), [TABLE, numbers(7, 2, below=6)]),
    "largest without padding": (bag("max", padding_idx=5), [TABLE, numbers(7, 2, below=6)]),
    "bags": (bags, [TABLE, numbers(9, 5)]),
    "int32, counted from the end": (bags, [TABLE, numbers(9, 37, dtype=torch.int32) - 46]),
    "one bag": (lambda table, ids: table[ids].sum(0), [TABLE, numbers(21)]),
    "weights": (weighed, [TABLE, numbers(7, 6), normal(7, 6)]),
    "padding": (padded, [TABLE, numbers(6, 8, below=9)]),
    "softmax": (attended, [TABLE, numbers(5, 11), normal(5, 11)]),
    "neighbours": (neighbours, [POINTS, numbers(2, 30, 6, below=30)]),
    "two tables": (pairs, [HALVES, TABLE[:, :16], numbers(9, 5, below=40), numbers(9, 5, seed=1)]),
    "heads": (heads, [TABLE, numbers(4, 9)]),
    "of each image": (lambda x, ids: x[:, ids].sum(2), [POINTS, numbers(5, 6, below=30)]),
    "lines of 7": (bags, [TABLE[:, :7].contiguous(), numbers(3, 130)]),
}


def check(source, function, calls, folder):
    """The kernel's outputs on the emulated GPU are those of the function in float64."""
    with emulated_device("sm_90a"):
        kernel_fn = load(source, folder).kernel_fn
        results = [[out.cpu() for out in as_list(kernel_fn(*map(move, inputs)))] for inputs in calls]
    for outs, inputs in zip(results, calls, strict=True):
        exact = as_list(function(*(x.double() if x.is_floating_point() else x for x in inputs)))
        for ours, theirs, expected in zip(outs, as_list(function(*inputs)), exact, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            tolerance = TOLERANCE.get(ours.dtype, 0)
            torch.testing.assert_close(ours.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_one_launch_computes_what_pytorch_does(name, tmp_path):
    function, inputs = CASES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert plan.pattern == "columns"
    check(plan.render(plan.configurations()[0]), function, [inputs], tmp_path)


@pytest.mark.parametrize(("function", "x"), [(first_below_its_last_line, TABLE[4:9, :16]), (line_and_more, TABLE[0])])
def test_one_line_is_read_by_many_columns(function, x, tmp_path):
    plan = plan_kernel(trace_function(function, [x]), "sm_90a")
    assert "columns" in [launch.plan.pattern for launch in plan.launches]
    check(plan.render(plan.configurations()[0]), function, [[x]], tmp_path)


def test_one_file_takes_bags_of_any_length_none_among_them(tmp_path):
    plan = match(trace_function(bags, [TABLE, numbers(9, 5)]))
    tables = TABLE, TABLE, TABLE[:, 1:], normal(60, 4), TABLE[:, :1]
    calls = [[t, numbers(*s)] for t, s in zip(tables, [(3, 1), (4, 0), (2, 300), (0, 5), (5, 3)], strict=True)]
    check(plan.render(plan.configurations()[0]), bags, calls, tmp_path)


@pytest.mark.slow
def test_visits_take_lines_again_where_registers_do_not_hold_them(tmp_path):
    few = ColumnsConfiguration(vector=4, lanes=8, threads=32, max_threads=32, resident_elements=4, reload_elements=8)
    calls = [[TABLE, numbers(5, 11), normal(5, 11)], [TABLE, numbers(2, 45), normal(2, 45)]]
    check(match(trace_function(attended, calls[0])).render(few), attended, calls, tmp_path)


def test_what_is_not_part_of_a_line_is_left_to_others():
    each = lambda table, ids: table.gather(0, ids).unflatten(0, (2, 3)).sum(1)  # noqa: E731
    turned = lambda table, ids: table.t()[:, ids].sum(1)  # noqa: E731
    framed = lambda table: F.pad(table, (0, 0, 1, 1)).softmax(0).amax(0)  # noqa: E731 - no tensor has as many lines
    for function, inputs in ((each, [TABLE, numbers(6, 24)]), (turned, [TABLE, numbers(4, 5)]), (framed, [TABLE])):
        with pytest.raises(UnmatchedError):
            match(trace_function(function, inputs))


def test_a_product_is_stored_before_its_lines_are_taken():
    plan = plan_kernel(
        trace_function(lambda x, w, i: (x @ w)[i].mean(1), [TABLE, normal(24, 32), numbers(9, 5)]), "sm_90a"
    )
    assert [launch.plan.pattern for launch in plan.launches] == ["contraction", "columns"]


def test_loads_of_lines_are_vectors_and_on_their_way_together(tmp_path):
    table, ids = torch.empty(1000000, 64, device="meta"), torch.empty(16384, 32, dtype=torch.int64, device="meta")
    plan = match(trace_function(bags, [table, ids]))
    assert H200.seconds(plan) < 45e-6 and plan.algorithmic_bytes < 150e6  # the table has 256 MB
    with session("sm_90a") as recorded:
        load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(like(table), like(ids))
    (kernel,), (launch,) = read_ptx(recorded.modules[0].ptx).values(), recorded.launches
    compiled = launch.compiled
    assert kernel.widest_load_bits == 128 and compiled.registers <= 64
    assert (compiled.stack_bytes, compiled.local_loads, compiled.local_stores) == (0, 0, 0)

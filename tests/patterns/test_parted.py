"""One long dimension as parts: launches of many blocks where a row alone would have one, numbers as PyTorch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.chains.parted import FEWEST_PARTS, TIMES_MORE, parts_of
from cutesmith.patterns.cutting.machine import H200
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated_hopper, exactly, first_kernel, move, normal

LONG, SHORT = 1 << 20, 1 << 12
CASES = {
    "sum": (lambda x: x.sum(), [(LONG,)]),
    "mean_square": (F.mse_loss, [(LONG,), (LONG,)]),
    "norm": (torch.linalg.norm, [(3, LONG)]),
    "largest": (lambda x: (x.amax(), x.amin()), [(LONG, 1)]),
    "over_its_norm": (lambda x: x / x.norm(), [(LONG,)]),
    "scaled": (lambda x, y: x / x.abs().amax(-1, keepdim=True) * y, [(2, LONG), (LONG,)]),
    "softmax": (lambda x, y: x.softmax(-1) * y, [(2, LONG), (LONG,)]),
    "logarithm": (lambda x: x.double().float().logsumexp(0), [(LONG,)]),
    "deviation": (lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), [(2, LONG)]),
    "mean_of_columns": (lambda x: x.mean(0), [(LONG, 4)]),
    "place": (lambda x: x.argmax(), [(LONG,)]),
    "largest_and_its_place": (lambda x: tuple(x.max(-1)), [(2, LONG)]),
    "place_in_an_image": (lambda x: x.argmin(), [(512, LONG)]),
    "places_of_columns": (lambda x: x.argmin(0), [(LONG, 4)]),
}


def traced(name):
    function, shapes = CASES[name]
    with torch.device("meta"):
        return plan_kernel(trace_function(function, [torch.empty(shape) for shape in shapes]), "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_parts_have_blocks_of_their_own_and_come_to_the_whole(name, tmp_path):
    function, shapes = CASES[name]
    plan = traced(name)
    assert isinstance(plan, ChainPlan)
    assert plan.launches[0].plan.blocks >= FEWEST_PARTS
    inputs = [normal(*(SHORT if size == LONG else size for size in shape), seed=at) for at, shape in enumerate(shapes)]
    with emulated_hopper():
        found = as_list(first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)))
    for ours, exact in zip(found, exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours.cpu(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_parts_that_are_masked_as_a_whole_have_nothing_of_the_sum(name, tmp_path):
    x = normal(3, SHORT)
    x[0, :64] = x[1] = -torch.inf
    x[2, 70] = torch.inf
    with torch.device("meta"):
        plan = plan_kernel(trace_function(lambda x: getattr(x, name)(-1), [torch.empty(3, LONG)]), "sm_90a")
    assert plan.pattern == "split_rows"
    with emulated_hopper():
        found = first_kernel(plan, tmp_path).kernel_fn(move(x)).cpu()
    torch.testing.assert_close(found, getattr(x, name)(-1), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.slow
def test_the_first_of_equal_elements_is_found_in_the_parts_and_nan_before_all(tmp_path):
    x = torch.randint(0, 4, (4, SHORT), generator=torch.Generator().manual_seed(0)).float()
    x[0, [4000, 17, 3000]] = 9.0
    x[1, [1500, 2500]], x[1, 5] = torch.nan, torch.inf
    x[2], x[3] = -torch.inf, 0.0
    with torch.device("meta"):
        plan = plan_kernel(trace_function(lambda x: tuple(x.max(-1)), [torch.empty(4, LONG)]), "sm_90a")
    assert plan.pattern == "split_rows"
    with emulated_hopper():
        values, places = first_kernel(plan, tmp_path).kernel_fn(move(x))
    torch.testing.assert_close(values.cpu(), x.max(-1).values, rtol=0, atol=0, equal_nan=True)
    assert places.tolist() == [17, 1500, 0, 0]


def test_a_length_that_has_no_such_parts_is_refused_with_what_it_needs(tmp_path):
    with emulated_hopper():
        kernel = first_kernel(traced("sum"), tmp_path)
        with pytest.raises(ValueError, match=r"x.shape\[0\]"):
            kernel.kernel_fn(move(normal(SHORT + 1)))


def test_parts_are_equal_and_whole_vectors_where_they_can_be():
    assert parts_of(LONG) == TIMES_MORE * FEWEST_PARTS
    assert [parts_of(size) for size in (1000 * 1000, 6 * 1031, 131 * 3, 1 << 7)] == [1000, 1, 393, 128]
    assert all(size % parts_of(size) == 0 for size in range(1, 5000))


@pytest.mark.parametrize(("shape", "dim"), [((0, 4), 1), ((0, 4096), 1), ((4, 0), 0)])
def test_no_rows_take_the_time_of_a_launch(shape, dim):
    plan = plan_kernel(trace_function(lambda x: x.sum(dim), [torch.empty(shape)]), "sm_90a")
    assert H200.seconds(plan) == H200.launch_seconds


def test_one_block_is_predicted_to_read_what_one_block_reads():
    prime = 16_777_213
    with torch.device("meta"):
        plan = plan_kernel(trace_function(lambda x: x.sum(), [torch.empty(prime)]), "sm_90a")
    assert H200.seconds(plan) > 4 * prime / H200.block_bytes_per_second

"""Sorts on the emulated GPU: values and places must be PyTorch's own, of every dtype, layout and length."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.selection.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.writing.calling import called_as
from tests.patterns.running import as_list, emulated_hopper, exactly, load, move, normal

ODD, CUBE = normal(3, 131), normal(2, 37, 5)
INTS = torch.randint(-9, 9, (4, 50), generator=torch.Generator().manual_seed(0))


def specials() -> torch.Tensor:
    """Ties, zeros of both signs, infinities and NaN."""
    x = torch.randint(-2, 3, (3, 70), generator=torch.Generator().manual_seed(1)).float()
    x[0, ::7], x[1, 3], x[1, 9], x[2, 5], x[2, 60] = -0.0, math.inf, -math.inf, math.nan, -math.nan
    return x


def ordered(x, **settings):
    return tuple(torch.sort(x, stable=True, **settings))


CASES = {
    "ties and NaN": (lambda x: ordered(x), (specials(),)),
    "falling": (lambda x: ordered(x, descending=True), (specials(),)),
    "few of a long line": (lambda x: torch.topk(x, 20, sorted=True).values, (normal(2, 9000),)),
}
SLOW_CASES = {
    "as many as are kept": (lambda x, kept: torch.topk(x, kept, dim=1).values, (CUBE, 3)),
    "int64 down": (lambda x: ordered(x, dim=0), (INTS,)),
    "places alone": (lambda x: x.argsort(stable=True), (ODD,)),
    "bf16": (lambda x: ordered(x, dim=1), (CUBE.bfloat16(),)),
    "float64": (lambda x: ordered(x), (specials().double(),)),
    "fp16": (lambda x: ordered(x, descending=True), (specials().half(),)),
    "bf16 with ties": (lambda x: ordered(x), (specials().bfloat16(),)),
    "uint8 falling": (lambda x: ordered(x, descending=True), (INTS.abs().to(torch.uint8),)),
    "bool": (lambda x: ordered(x), (ODD > 0,)),
    "smallest": (lambda x: torch.topk(x, 5, largest=False).values, (ODD,)),
    "places of the largest": (lambda x: torch.topk(x, 5).indices, (ODD,)),
    "one element": (lambda x: ordered(x), (normal(5, 1),)),
    "no line": (lambda x: ordered(x), (normal(0, 5),)),
    "longer than shared memory": (lambda x: ordered(x), (normal(1, 20000),)),
    "nearly in order": (lambda x: torch.topk(x, 64).values, (torch.arange(12000.0)[None],)),
    "transposed": (lambda x: ordered(x.transpose(1, 2)), (CUBE,)),
}


def first_shape(plan, **wanted):
    """The best guess of those with these fields."""
    return next(each for each in plan.configurations() if wanted.items() <= each.to_dict().items())


def check(function, inputs, folder, *, radix, **changed):
    plan = match(trace_function(function, inputs))
    shape = replace(first_shape(plan, radix=radix), **changed)
    expected = as_list(function(*inputs))
    with emulated_hopper():
        ours = as_list(load(plan.render(shape), folder).kernel_fn(*map(move, inputs)))
        found = [each.cpu() for each in ours]
    for our, their in zip(found, expected, strict=True):
        torch.testing.assert_close(our, their, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("radix", [False, True], ids=["network", "digits"])
@pytest.mark.parametrize("name", CASES)
def test_is_sorted_as_pytorch_does(name, radix, tmp_path):
    check(*CASES[name], tmp_path, radix=radix)


@pytest.mark.slow
@pytest.mark.parametrize("radix", [False, True], ids=["network", "digits"])
@pytest.mark.parametrize("name", SLOW_CASES)
def test_is_sorted_in_every_layout(name, radix, tmp_path):
    check(*SLOW_CASES[name], tmp_path, radix=radix)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float16])
def test_a_line_of_several_tiles_goes_through_memory(dtype, tmp_path):
    """One turn ends in the other half of the scratch than two."""
    x = (40 * normal(2, 2000)).abs().to(dtype)
    check(lambda x: ordered(x), (x,), tmp_path, radix=True, threads=256, loads=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "cluster"),
    [
        (specials().repeat(1, 20), 2),
        pytest.param((9 * normal(2, 2000)).bfloat16(), 4, marks=pytest.mark.slow),
        pytest.param(normal(2, 1500).double(), 8, marks=pytest.mark.slow),
    ],
)
def test_a_line_is_spread_over_a_cluster_of_blocks(x, cluster, tmp_path):
    check(lambda x: ordered(x, descending=True), (x,), tmp_path, radix=True, threads=256, loads=4, cluster=cluster)


@pytest.mark.slow
def test_a_cluster_has_more_places_than_16_bits_tell(tmp_path):
    x = torch.randint(0, 256, (1, 66000), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    check(lambda x: ordered(x), (x,), tmp_path, radix=True, threads=512, loads=17, cluster=8)


@pytest.mark.slow
def test_a_part_of_a_cluster_lies_on_both_sides_of_a_place_of_17_bits(tmp_path):
    x = torch.randint(0, 99, (1, 66500), generator=torch.Generator().manual_seed(0)).to(torch.int16)
    check(lambda x: ordered(x), (x,), tmp_path, radix=True, threads=1024, loads=33, cluster=2)


@pytest.mark.slow
def test_a_line_that_no_cluster_holds_goes_through_memory_in_tiles(tmp_path):
    check(lambda x: ordered(x), (normal(1, 1300).half(),), tmp_path, radix=True, threads=256, loads=2, cluster=2)


def test_bytes_take_one_turn_and_few_long_lines_are_sorted_by_digits():
    long, bytes_ = (
        match(trace_function(ordered, [torch.empty(64, 32000, dtype=d)])) for d in (torch.float32, torch.int8)
    )
    assert first_shape(long).radix
    assert bytes_.warp_instructions < long.warp_instructions / 2
    assert {shape.cluster for shape in long.configurations("sm_80")} == {1}
    few, many = (match(trace_function(ordered, [torch.empty(lines, 32000)])) for lines in (8, 132))
    assert first_shape(few).cluster == 8
    assert first_shape(many).cluster == 1
    longer = match(trace_function(ordered, [torch.empty(64, 128256)]))
    assert first_shape(longer).cluster == 8
    assert {shape.cluster for shape in longer.configurations("sm_80")} == {1}


@pytest.mark.slow
def test_one_kernel_keeps_as_many_as_it_is_told_to(tmp_path):
    plan = plan_kernel(trace_function(lambda x, kept: torch.topk(x, kept).values[:, -1:] + x, (ODD, 7)), "sm_90a")
    kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
    with emulated_device("sm_90a"):
        for x, kept in ((ODD, 7), (normal(2, 40), 40), (normal(5, 9), 1)):
            expected = torch.topk(x, kept).values[:, -1:] + x
            torch.testing.assert_close(kernel_fn(move(x), kept).cpu(), expected, rtol=0, atol=0)
        with pytest.raises(ValueError, match="a line of 9 elements has no first 10"):
            kernel_fn(move(normal(5, 9)), 10)


@pytest.mark.slow
def test_a_number_that_counts_rounds_is_held(tmp_path):
    def rounds(x, count):
        for _ in range(count):
            x = torch.sin(x)
        return x

    plan = plan_kernel(trace_function(rounds, (ODD, 3)), "sm_90a")
    with emulated_device("sm_90a"):
        source = called_as(plan.render(plan.configurations()[0]), plan.graph.call)
        kernel_fn = load(source, tmp_path).kernel_fn
        torch.testing.assert_close(kernel_fn(move(ODD), 3).cpu(), rounds(ODD, 3))
        with pytest.raises(ValueError, match="written for count=3; generate another for count=4"):
            kernel_fn(move(ODD), 4)


def test_what_is_around_a_sort_is_launches_of_its_own():
    graph = trace_function(lambda x: torch.softmax(x, 1).sort(1, descending=True).values.cumsum(1), (ODD,))
    plan = plan_kernel(graph, "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["rows", "selection", "scans"]


@pytest.mark.slow
def test_values_and_places_that_different_launches_read_are_one_sort(tmp_path):
    def gates(x):
        values, places = x.topk(2, -1)
        return torch.zeros_like(x).scatter(1, places, values / values.sum(-1, keepdim=True))

    x = normal(5, 9).exp()
    plan = plan_kernel(trace_function(gates, (x,)), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches].count("selection") == 1
    with emulated_device("sm_90a"):
        ours = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn(move(x))
    torch.testing.assert_close(ours.cpu(), *exactly(gates, (x,)))


def best_guess(lines: int, length: int, count: int):
    with torch.device("meta"):
        plan = plan_kernel(trace_function(lambda x: x.topk(count).values, [torch.empty(lines, length)]), "sm_90a")
    return plan.configurations()[0]


def test_many_lines_have_a_warp_each_and_few_long_ones_large_blocks():
    assert [best_guess(*sizes).threads for sizes in ((8192, 64, 8), (32768, 2048, 20))] == [32, 32]
    assert best_guess(64, 32000, 32000).threads >= 512


@pytest.mark.slow
def test_a_warp_alone_keeps_the_first_of_a_long_line(tmp_path):
    """Rising lines, whose every element is a new first one, falling ones and equal ones."""
    steps = torch.arange(700.0)
    x = torch.stack([steps, -steps, steps % 7, torch.zeros(700)])
    plan = match(trace_function(lambda x: x.topk(5), [x]))
    shape = first_shape(plan, threads=32)
    with emulated_hopper():
        values, places = load(plan.render(shape), tmp_path).kernel_fn(move(x))
    theirs = x.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values.cpu(), theirs.values[:, :5]) and torch.equal(places.cpu(), theirs.indices[:, :5])

"""Products with short sums as pointwise work, and costly functions that are stored where many elements read them."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.cutting.small_products import with_small_products
from cutesmith.patterns.cutting.tables import with_tables
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, emulated_hopper, exactly, first_kernel, move, normal

BF16 = torch.bfloat16


def covariances(p, f, q):
    return f @ p @ f.mT + q


def rotated_pairs(x, angles):
    """As a complex product."""
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


def rotated_halves(x, angles):
    halves = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-halves[1], halves[0]), -1) * angles.sin()


PRODUCTS = {  # a function, shapes of its arguments as planned and as run
    "covariances": (covariances, [(90000, 4, 4), (4, 4), (4, 4)], [(50, 4, 4), (4, 4), (4, 4)]),
    "frames": (torch.matmul, [(300000, 3, 3), (300000, 3, 3)], [(70, 3, 3), (70, 3, 3)]),
    "16 bits": (torch.matmul, [(300000, 3, 3), (300000, 3, 3)], [(70, 3, 3), (70, 3, 3)]),
}
TABLES = {
    "pairs": (rotated_pairs, [normal(2, 40, 8, dtype=BF16), normal(40, 4)]),
    "halves": (rotated_halves, [normal(3, 5, 40, 8), normal(40, 8)]),
    "stack": (lambda x: torch.stack((x[0].sin(), x[1].sin() - x[0].sin(), x[0].sin() * 2)), [normal(2, 9, 7)]),
}


def launches(plan):
    return [each.plan.pattern for each in plan.launches] if isinstance(plan, ChainPlan) else [plan.pattern]


def check(function, inputs, outputs):
    for ours, theirs in zip(outputs, exactly(function, inputs), strict=True):
        close(3e-6, of_largest=True)(ours.cpu(), theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_short_sums_are_pointwise(name, tmp_path):
    function, planned, run = PRODUCTS[name]
    dtype = BF16 if name == "16 bits" else torch.float32
    with torch.device("meta"):
        graph = trace_function(function, [torch.empty(shape, dtype=dtype) for shape in planned])
    inputs = [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(run)]
    plan = plan_kernel(graph, "sm_90a")
    assert set(launches(plan)) == {"elementwise"}
    with emulated_hopper():
        check(function, inputs, as_list(first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs))))


def test_another_length_of_a_short_sum_is_refused(tmp_path):
    with torch.device("meta"):
        plan = plan_kernel(
            trace_function(torch.matmul, [torch.empty(300000, 3, 4), torch.empty(300000, 4, 3)]), "sm_90a"
        )
    kernel_fn = first_kernel(plan, tmp_path).kernel_fn
    with emulated_hopper(), pytest.raises(ValueError, match="3, 3"):
        kernel_fn(*(move(normal(70, 3, 3)) for _ in range(2)))


def test_products_with_longer_sums_or_few_results_stay_products():
    for shapes in [((700, 9), (9, 96)), ((70, 5), (5, 96))]:
        graph = trace_function(torch.matmul, [normal(*shape) for shape in shapes])
        assert with_small_products(graph) is graph


@pytest.mark.parametrize("name", TABLES)
def test_costly_functions_that_many_elements_read_are_stored(name):
    function, inputs = TABLES[name]
    graph = trace_function(function, inputs)
    tables = with_tables(graph)
    costly = [node for node in tables.nodes() if node.op in ("sin", "cos")]
    assert sum(math.prod(node.shape) for node in costly) <= 2 * inputs[-1].numel()
    check(function, inputs, interpret(tables, inputs))


def test_a_mask_of_coordinates_is_stored_once_where_a_softmax_divides_by_a_sum():
    def regions(x):
        at = torch.arange(x.shape[-1], device=x.device)
        labels = at // 6 * 3 + at % 6 // 4
        return (x + torch.where(labels[:, None] == labels, 0.0, -100.0)).softmax(-1)

    inputs = [normal(3, 4, 12, 12)]
    tables = with_tables(trace_function(regions, inputs))
    assert [node.shape[-2:] for node in tables.nodes() if node.op == "stored"] == [(12, 12)]
    check(regions, inputs, interpret(tables, inputs))


@pytest.mark.slow
def test_large_rotations_compute_each_angle_once(tmp_path):
    """In float32, whose sines take a hundred instructions; those of 16 bits take two."""
    with torch.device("meta"):
        given = [torch.empty(4, 512, 32 * 128), torch.empty(512, 32 * 64)]
    plan = plan_kernel(trace_function(rotated_pairs, given), "sm_90a")
    assert launches(plan) == ["elementwise"] * 3
    inputs = [normal(2, 6, 32 * 128), normal(6, 32 * 64)]
    with emulated_hopper():
        check(rotated_pairs, inputs, as_list(first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs))))


def test_what_is_read_once_is_not_stored():
    graph = trace_function(lambda x: x.sin().flip(0), [normal(40, 8)])
    assert with_tables(graph) is graph

"""Scatters by atomics in device memory, in the cases of `test_scatters.py` and where columns, strides, types differ."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.scatters.atomics import AtomicsPlan, planned
from cutesmith.patterns.scatters.walk import WalkPlan
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated, load, move, normal
from tests.patterns.test_scatters import BASE, INDEX, X, compare, ints, with_nan
from tests.patterns.test_scatters import CASES as ORDERED
from tests.patterns.test_scatters import SLOW_CASES as MORE_ORDERED

pytestmark = pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")


def messages(x, source, target):
    return torch.zeros_like(x).index_add(0, target, x[source])


def segment_softmax(x, segment):
    rows = (30, x.shape[1])
    most = torch.full(rows, -math.inf, dtype=x.dtype, device=x.device).index_reduce(0, segment, x, "amax")
    e = torch.exp(x - most[segment])
    return e / torch.zeros(rows, dtype=x.dtype, device=x.device).index_add(0, segment, e)[segment]


IN_ORDER = ["products", "index_copy"]
GRAPH = normal(20, 64), ints(20, 90), ints(20, 90, seed=1)
EXPERTS = normal(9, 24).bfloat16(), INDEX, X.bfloat16(), normal(40).bfloat16()
CASES = {
    "messages": (messages, GRAPH),
    "messages of few columns": (messages, (normal(20, 7), *GRAPH[1:])),
    "sorted messages": (messages, (GRAPH[0], GRAPH[1], GRAPH[2].sort().values)),
    "experts": (lambda b, i, x, w: b.index_add(0, i, x * w[:, None]), EXPERTS),
}
SLOW_CASES = {
    "sorted planes and their means": (
        lambda b, i, x: b.index_reduce(0, i, x, "mean", include_self=False),
        (normal(7, 3, 8), ints(7, 40).sort().values, normal(40, 3, 8)),
    ),
    "sorted extremes": (lambda b, i, x: b.index_reduce(0, i, x, "amax"), (BASE, INDEX.sort().values, with_nan())),
    "messages of halves": (messages, (GRAPH[0].half(), *GRAPH[1:])),
    "messages of a part": (messages, (normal(20, 65)[:, 1:], *GRAPH[1:])),
    "most of doubles": (
        lambda b, i, x: b.scatter_reduce(0, i[:, None].expand_as(x), x, "amax", include_self=False),
        (BASE.double(), INDEX, with_nan().double()),
    ),
    "least with NaN": (lambda b, i, x: b.index_reduce(0, i, x, "amin"), (BASE, INDEX, with_nan())),
    "softmax of segments": (segment_softmax, (normal(200, 4), ints(30, 200))),
    "three dimensions": (lambda b, i, x: b.index_add(1, i, x), (normal(3, 7, 8), ints(7, 40), normal(3, 40, 8))),
    "planes": (lambda b, i, x: b.index_add(0, i, x), (normal(7, 3, 8), ints(7, 40), normal(40, 3, 8))),
    **{name: case for name, case in (ORDERED | MORE_ORDERED).items() if name not in IN_ORDER},
}


def by_atomics(plan):
    """The plan with atomics wherever it has a scatter that allows them."""
    if isinstance(plan, ChainPlan):
        return replace(plan, launches=tuple(replace(each, plan=by_atomics(each.plan)) for each in plan.launches))
    return (planned(plan.problem) or plan) if isinstance(plan, WalkPlan) else plan


def run(plan, folder, *calls, arch="sm_90a", at=0):
    """What the kernel of a configuration returns for each of the inputs."""
    with emulated(arch):
        kernel_fn = load(plan.render(plan.configurations(arch)[at]), folder).kernel_fn
        return [[out.cpu() for out in as_list(kernel_fn(*map(move, inputs)))] for inputs in calls]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs = CASES[name]
    compare(
        function, inputs, *run(by_atomics(plan_kernel(trace_function(function, inputs), "sm_90a")), tmp_path, inputs)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_CASES)
def test_more_results(name, tmp_path):
    function, inputs = SLOW_CASES[name]
    compare(
        function, inputs, *run(by_atomics(plan_kernel(trace_function(function, inputs), "sm_90a")), tmp_path, inputs)
    )


@pytest.mark.slow
def test_every_configuration_is_right(tmp_path):
    plan = by_atomics(plan_kernel(trace_function(messages, GRAPH), "sm_90a"))
    for at in range(len(plan.configurations("sm_90a"))):
        compare(messages, GRAPH, *run(plan, tmp_path, GRAPH, at=at))


@pytest.mark.slow
def test_one_kernel_serves_other_sizes(tmp_path):
    """More columns than a block has threads, columns without whole vectors, a graph without edges, one node."""
    sizes = ((3, 1500, 40), (20, 65, 7), (20, 64, 0), (1, 4, 300), (500, 1, 30))
    others = [
        (normal(n, k), ints(n, e), ints(n, e, seed=1)) if e else (normal(n, k), INDEX[:0], INDEX[:0])
        for n, k, e in sizes
    ]
    plan = by_atomics(plan_kernel(trace_function(messages, GRAPH), "sm_90a"))
    for inputs, found in zip(others, run(plan, tmp_path, *others), strict=True):
        compare(messages, inputs, found)


@pytest.mark.slow
def test_before_hopper_a_thread_adds_one_number(tmp_path):
    plan = by_atomics(plan_kernel(trace_function(messages, GRAPH), "sm_80"))
    assert {configuration.vector for configuration in plan.configurations("sm_80")} == {1}
    compare(messages, GRAPH, *run(plan, tmp_path, GRAPH, arch="sm_80"))


@pytest.mark.slow
def test_an_index_outside_changes_nothing(tmp_path):
    source, target = GRAPH[1:]
    target = target.clone()
    target[3], target[4], target[5] = 20, -1, 2**32
    inside = (target >= 0) & (target < 20)
    plan = by_atomics(plan_kernel(trace_function(messages, GRAPH), "sm_90a"))
    compare(messages, (GRAPH[0], source[inside], target[inside]), *run(plan, tmp_path, (GRAPH[0], source, target)))


@pytest.mark.parametrize(
    ("nodes", "edges", "kind"), [(100_000, 1_000_000, AtomicsPlan), (2_000, 200, WalkPlan), (20, 100, WalkPlan)]
)
def test_many_indices_are_added_by_atomics_and_few_in_their_order(nodes, edges, kind):
    inputs = torch.zeros(nodes, 64), torch.zeros(edges, dtype=torch.int64), torch.zeros(edges, dtype=torch.int64)
    assert isinstance(plan_kernel(trace_function(messages, inputs), "sm_90a"), kind)


def test_four_numbers_are_added_at_once_where_the_results_are_the_buffers():
    plan = by_atomics(plan_kernel(trace_function(messages, GRAPH), "sm_90a"))
    assert plan.is_direct and plan.vector("sm_90a") == 4 and [row.tensor.name for row in plan.rows]


TABLES = {
    "histc": (ORDERED | MORE_ORDERED)["histc"],
    "extremes with NaN": (ORDERED | MORE_ORDERED)["extremes with NaN"],
    "bincount": (lambda x: torch.bincount(x, minlength=50), (ints(50, 9000),)),
    "least of halves": (lambda b, i, x: b.index_reduce(0, i, x, "amin"), (BASE.half(), INDEX, with_nan().half())),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", TABLES)
def test_blocks_combine_in_shared_memory_first(name, tmp_path):
    function, inputs = TABLES[name]
    plan = planned(plan_kernel(trace_function(function, inputs), "sm_90a").problem).in_shared_memory()
    compare(function, inputs, *run(plan, tmp_path, inputs))


@pytest.mark.slow
def test_places_that_shared_memory_cannot_hold_are_in_device_memory(tmp_path):
    function, inputs = TABLES["extremes with NaN"]
    plan = planned(plan_kernel(trace_function(function, inputs), "sm_90a").problem).in_shared_memory()
    large = normal(plan.table // 24 + 1, 24), ints(300, 40), with_nan()
    compare(function, large, *run(plan, tmp_path, large))


def test_a_histogram_of_many_numbers_is_counted_in_shared_memory():
    graph = trace_function(lambda x: torch.bincount(x, minlength=256), [torch.zeros(1 << 22, dtype=torch.int64)])
    assert plan_kernel(graph, "sm_90a").private


@pytest.mark.parametrize("name", IN_ORDER)
def test_what_depends_on_the_order_is_not_added(name):
    function, inputs = MORE_ORDERED[name]
    assert planned(plan_kernel(trace_function(function, inputs), "sm_90a").problem) is None

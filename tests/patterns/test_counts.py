"""Sums of one-hot rows are counts, at other sizes too; sums of other comparisons stay as they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.cutting.counts import with_counts
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated, load, move, normal
from tests.patterns.test_scatters import compare, ints

CASES = {
    "tokens of experts": (lambda x: F.one_hot(x, 20).sum((0, 1)).float() / 3, [(ints(20, 30, 5),), (ints(20, 7, 4),)]),
    "in lines": (lambda x: F.one_hot(x, 20).sum(1), [(ints(20, 30, 50),), (ints(20, 7, 40),)]),
    "as many as rows": (
        lambda x, w: (x[:, None] == torch.arange(w.shape[0], device=x.device)).sum(0) * w,
        [(ints(20, 300), normal(20)), (ints(20, 77), normal(7))],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_counts(name, tmp_path):
    function, calls = CASES[name]
    graph = with_counts(trace_function(function, calls[0]))
    plan = whole_or_cut(graph)
    assert not any(node.op == "sum" for node in graph.nodes())
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        for inputs in calls:
            compare(function, inputs, [kernel_fn(*map(move, inputs)).cpu()])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.one_hot(x, 20).sum(-1),
        lambda x: (x.float()[:, None] == torch.arange(20, device=x.device)).sum(0),
        lambda x: (x[:, None] == torch.arange(300, device=x.device)[:, None] + x.new_zeros(20)).sum(0),
        lambda x: (x[:, None] > torch.arange(20, device=x.device)).sum(0),
    ],
)
def test_other_sums_stay(function):
    graph = trace_function(function, [ints(20, 300)])
    assert with_counts(graph) is graph


def test_one_hot_rows_of_many_tokens_are_not_stored():
    graph = trace_function(lambda x: F.one_hot(x, 64).sum(0), [torch.zeros(1 << 17, dtype=torch.int64)])
    assert [launch.plan.pattern for launch in plan_kernel(graph, "sm_90a").launches] == ["scatters"]

"""Rows that overwrite by a table of owners: the last of several stays, at other sizes too, and many are not walked."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.cutting.owners import with_owners
from cutesmith.patterns.match import plan_kernel, whole_or_cut
from cutesmith.patterns.scatters.atomics import AtomicsPlan
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated, load, move, normal
from tests.patterns.test_scatters import BASE, PLACES, X, compare, ints


def copied(base, index, x):
    return base.index_copy(0, index, x * 2)


CASES = {
    "rows": (copied, (BASE, ints(9, 40), X)),
    "lines": (lambda b, i, x: b.scatter(1, i, x), (normal(5, 11), ints(11, 5, 70), normal(5, 70))),
    "down": (lambda b, i, x: b.scatter(0, i, x), (normal(11, 6), ints(11, 70, 6), normal(70, 6))),
    "without repeats": (lambda b, i, x: b.scatter(1, i, x), (normal(5, 11), PLACES, normal(5, 7))),
    "columns": (lambda b, i, x: b.index_copy(1, i, x), (normal(4, 9), ints(9, 30), normal(4, 30))),
    "halves of one column": (copied, (BASE.half(), ints(9, 40), X[:, :1].half().expand(40, 24))),
}


def by_owners(function, inputs):
    graph = trace_function(function, inputs)
    owned = with_owners(graph)
    assert owned is not graph and not any("last" in str(node.attrs) for node in owned.nodes())
    return whole_or_cut(owned)


def run(plan, folder, *calls):
    with emulated("sm_90a"):
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), folder).kernel_fn
        return [[out.cpu() for out in as_list(kernel_fn(*map(move, inputs)))] for inputs in calls]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_last_row_stays(name, tmp_path):
    function, inputs = CASES[name]
    compare(function, inputs, *run(by_owners(function, inputs), tmp_path, inputs))


@pytest.mark.slow
def test_one_kernel_serves_other_sizes(tmp_path):
    others = [(normal(n, k), ints(n, m), normal(m, k)) for n, m, k in ((1, 5, 3), (300, 2, 24), (20, 700, 130))]
    for inputs, found in zip(others, run(by_owners(copied, (BASE, ints(9, 40), X)), tmp_path, *others), strict=True):
        compare(copied, inputs, found)


def test_many_rows_have_owners_that_atomics_find():
    inputs = torch.zeros(16384, 512), torch.zeros(16384, dtype=torch.int64), torch.zeros(16384, 512)
    first, _ = plan_kernel(trace_function(copied, inputs), "sm_90a").launches
    assert isinstance(first.plan, AtomicsPlan) and first.plan.sums[0].operation == "max"

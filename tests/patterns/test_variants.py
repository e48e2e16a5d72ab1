"""Functions whose operations follow sizes or numbers: a kernel for each of those that the problem names."""

from __future__ import annotations

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.variants import VariantsPlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.variants import variants_of
from tests.patterns.running import first_kernel, move, normal


def chained(x):
    """As many steps as x has rows; the number of columns decides nothing."""
    total = x[0]
    for row in range(1, x.shape[0]):
        total = torch.sin(total) + x[row]
    return total


def repeated(x, rounds):
    for _ in range(rounds):
        x = x - x.mean(-1, keepdim=True) * 0.5
    return x


def planned(function, sets) -> VariantsPlan:
    variants = variants_of(function, sets)
    return VariantsPlan(variants.places, {s: plan_kernel(g, "sm_90a") for s, g in variants.graphs.items()}, "sm_90a")


CASES = {
    "a loop over a dimension": (
        chained,
        [(normal(3, 8),), (normal(2, 5),), (normal(3, 6),)],
        ((0, 0),),
        (normal(4, 8),),
    ),
    "a number of rounds": (repeated, [(normal(3, 8), 2), (normal(4, 8), 1)], ((1, -1),), (normal(3, 8), 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_size_that_decides_has_its_kernel_and_others_are_refused(name, tmp_path):
    function, sets, places, other = CASES[name]
    plan = planned(function, sets)
    assert plan.places == places and len(plan.plans) == 2
    with emulated_device("sm_90a"):
        kernel_fn = first_kernel(plan, tmp_path).kernel_fn
        for inputs in sets:
            torch.testing.assert_close(kernel_fn(*map(move, inputs)).cpu(), function(*inputs), rtol=1e-5, atol=1e-5)
        with pytest.raises(ValueError, match="this kernel takes"):
            kernel_fn(*map(move, other))


def test_of_sets_with_the_sizes_that_decide_one_without_sizes_of_1_is_traced():
    sets = [(normal(3, 8),), (normal(2, 1),), (normal(2, 5),)]
    assert variants_of(chained, sets).graphs[(2,)].arguments[0].shape == (2, 5)


@pytest.mark.slow
def test_too_many_sizes_are_refused():
    with pytest.raises(UnmatchedError, match="13 sizes"):
        variants_of(chained, [(torch.empty(rows, 8),) for rows in range(2, 15)])


def test_sets_that_a_traced_graph_serves_do_not_run_the_function_again():
    runs = []

    def counted(x, w):
        runs.append(x.shape)
        return chained(x) * w

    def runs_for(sets, first=None):
        before = len(runs)
        return variants_of(counted, sets, first=first), len(runs) - before

    inputs, longer, wider = ((torch.empty(rows, width), torch.empty(width)) for rows, width in ((3, 8), (4, 8), (3, 6)))
    variants, alone = runs_for([inputs])
    first = variants.graphs[(3,)]
    assert alone > 1 and runs_for([inputs, wider, inputs])[1] == alone
    assert runs_for([inputs, wider], first) == (variants, 0)
    other, more = runs_for([inputs, longer], first)
    assert list(other.graphs) == [(3,), (4,)] and other.graphs[(3,)] is first and more > 1

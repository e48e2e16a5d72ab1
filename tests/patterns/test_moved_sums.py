"""Sums of what a value of the row is taken from: in one visit, and right far from zero and beside infinities."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.rows.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, close, emulated_hopper, exactly, first_kernel, move, normal

ROWS = normal(9, 70)
ROWS[1] += 1e6
ROWS[2, 0] = ROWS[3, 5] = -math.inf
ROWS[4, 0] = ROWS[5, 69] = math.nan
ROWS[6, 0] = ROWS[7, 3] = math.inf
ROWS[8] = -math.inf


def logs(x):
    y = x.log_softmax(-1)
    return y.sum(-1), y.mean(-1), (x - x.amin(-1, keepdim=True)).sum(-1)


def rms_of_deviations(x):
    return (x - x.mean(-1, keepdim=True)).sum(-1), (x - x.square().mean(-1, keepdim=True)).mean(-1)


@pytest.mark.slow
def test_sums_of_logarithms_take_the_visit_of_the_softmax(tmp_path):
    plan = match(trace_function(logs, [ROWS]))
    assert len(plan.analysis.reductions) == 1
    with emulated_hopper():
        outs = as_list(first_kernel(plan, tmp_path).kernel_fn(move(ROWS)))
    for ours, theirs in zip(outs, exactly(logs, [ROWS]), strict=True):
        close(1e-6)(ours.cpu(), theirs)


@pytest.mark.slow
def test_a_smoothed_loss_reads_its_logits_once(tmp_path):
    function = lambda x, y: torch.nn.functional.cross_entropy(x, y, label_smoothing=0.1)  # noqa: E731
    inputs = [normal(64, 40) + 1e4, torch.arange(64) % 40]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert len(plan.launches[0].plan.analysis.reductions) == 1
    with emulated_hopper():
        (loss,) = as_list(first_kernel(plan, tmp_path).kernel_fn(*map(move, inputs)))
    close(1e-6)(loss.cpu(), *exactly(function, inputs))


@pytest.mark.slow
def test_columns_are_summed_in_the_visit_of_the_softmax(tmp_path):
    function = lambda x: x.log_softmax(1).sum(1)  # noqa: E731
    x = ROWS.t().contiguous().expand(2, 70, 9).contiguous()
    plan = plan_kernel(trace_function(function, [x]), "sm_90a")
    assert plan.pattern == "columns" and len(plan.analysis.reductions) == 1
    with emulated_hopper():
        (out,) = as_list(first_kernel(plan, tmp_path).kernel_fn(move(x)))
    close(1e-6)(out.cpu(), *exactly(function, [x]))


def test_sums_that_need_no_extreme_stay_as_they_are():
    plan = match(trace_function(rms_of_deviations, [ROWS]))
    assert len(plan.analysis.reductions) == 2

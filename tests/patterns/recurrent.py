"""Chains with recurrent layers: which launches those are, and their results on the emulated GPU beside float64."""

from __future__ import annotations

from dataclasses import replace

import torch

from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.recurrences.plan import RecurrencesPlan
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated, load, move


def launches(plan) -> list[RecurrencesPlan]:
    return [each.plan for each in plan.launches if isinstance(each.plan, RecurrencesPlan)]


def check(function, inputs, tmp_path, *, arch: str = "sm_90a", within: float = 1e-6, calls: int = 1, **settings) -> str:
    """The source of the chain, whose results, of the last call, are as near to float64's as float32 lets expect."""
    plan = plan_kernel(trace_function(function, inputs), arch)
    assert launches(plan)
    source = plan.render(replace(plan.configurations(arch)[0], **settings))
    with emulated(arch):
        kernel, moved = load(source, tmp_path).kernel_fn, [*map(move, inputs)]
        for _ in range(calls):  # a call finds the memory of the one before
            outs = as_list(kernel(*moved))
    exact = as_list(function(*(x.double() for x in inputs)))
    for ours, theirs, wanted in zip(outs, as_list(function(*inputs)), exact, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        torch.testing.assert_close(ours.cpu().double(), wanted, rtol=5e-7, atol=within)  # states of relu grow
    return source

"""Masks in memory on Hopper: tiles of them come by TMA beside the keys, or each score's element is read in place."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.attention.hopper import tiled_operands
from cutesmith.patterns.attention.plan import match
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_hopper, exactly, load, move, normal
from tests.patterns.test_attention import heads, masked, written_out

slow = pytest.mark.slow
BF16, F16 = torch.bfloat16, torch.float16


def seen(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.7


def biased(q, k, v, bias):
    return written_out(q, k, v, change=lambda scores, i, j: scores * 0.5 + bias)


def hidden_and_biased(q, k, v, bias, mask):
    return written_out(q, k, v, change=lambda scores, i, j: (scores + bias).masked_fill(~mask, float("-inf")))


def behind_a_cache(q, k, v, more, mask):
    k, v = torch.cat((k, more), -2), torch.cat((v, more), -2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def cached(queries, first, more):
    q, k, v = heads(queries, first, 16)
    return q, k, v, normal(2, more, 16, dtype=BF16, seed=7)


MASKS = {
    "boolean": (masked, (*heads(70, 176), seen(70, 176))),
    "bfloat16 of a batch": (masked, (*heads(70, 176, heads=(2, 2)), normal(2, 1, 70, 176, dtype=BF16))),
    "float32 of each head": (biased, (*heads(70, 104), normal(2, 70, 104))),
    "two": (hidden_and_biased, (*heads(9, 48, dtype=F16), normal(2, 1, 9, 48, dtype=F16).expand(2, 2, 9, 48)[:, 0],
                                seen(9, 48))),
    "behind a cache": (behind_a_cache, (*cached(24, 96, 48), seen(24, 144))),
}  # fmt: skip


def run(module, function, *calls):
    with emulated_hopper():
        found = [module.kernel_fn(*map(move, inputs)).cpu() for inputs in calls]
    for ours, inputs in zip(found, calls, strict=True):
        (theirs,) = exactly(function, inputs)
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2, equal_nan=True)


def of_keys(plan, keys):
    return next(c for c in plan.configurations("sm_90a") if c.keys == keys)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys"),
    [("boolean", 192), *((name, 80) for name in MASKS if name != "boolean"), pytest.param("two", 64, marks=slow)],
)
def test_tiles_of_masks(name, keys, tmp_path):
    function, inputs = MASKS[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    assert tiled_operands(plan.problem)
    run(load(plan.render(of_keys(plan, keys)), tmp_path), function, inputs)


@pytest.mark.slow
def test_a_mask_whose_rows_begin_anywhere_is_read_where_it_is(tmp_path):
    """The same file serves other sizes: some rows of 90 keys, and of a slice, begin between units of 16 bytes."""
    plan = plan_kernel(trace_function(masked, (*heads(20, 96), normal(20, 96, dtype=BF16))), "sm_90a")
    module = load(plan.render(of_keys(plan, 80)), tmp_path)
    masks = normal(20, 90, dtype=BF16), normal(20, 104, dtype=BF16)[:, 3:99], normal(1, 96, dtype=BF16)
    run(module, masked, *((*heads(20, mask.shape[-1]), mask) for mask in masks))


@pytest.mark.slow
def test_a_cache_that_ends_anywhere_is_masked_too(tmp_path):
    plan = plan_kernel(trace_function(behind_a_cache, MASKS["behind a cache"][1]), "sm_90a")
    module = load(plan.render(of_keys(plan, 80)), tmp_path)
    run(module, behind_a_cache, (*cached(3, 40, 20), seen(3, 60)))


@pytest.mark.slow
def test_shared_memory_holds_the_tiles_of_a_mask():
    plain, mask = heads(4096, 4096, 128, heads=(8,)), normal(4096, 4096)
    without = match(trace_function(F.scaled_dot_product_attention, plain)).configurations("sm_90a")[0]
    beside = match(trace_function(biased, (*plain, mask))).configurations("sm_90a")[0]
    assert beside.keys < without.keys

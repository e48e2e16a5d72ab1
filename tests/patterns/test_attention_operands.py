"""Attention of computed queries, keys and values, as models write it: one launch, and others for its operands alone."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import check_product, normal

BF16 = torch.bfloat16


def attend(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def rotated(x, angles):
    halves = x.float().chunk(2, -1)
    return (x.float() * angles.cos() + torch.cat((-halves[1], halves[0]), -1) * angles.sin()).type_as(x)


def repeated(x, groups=2):
    batch, heads, *matrix = x.shape
    return x[:, :, None].expand(batch, heads, groups, *matrix).reshape(batch, heads * groups, *matrix)


def scaled_query(q, k, v):
    return torch.softmax((q * 0.25) @ k.mT, -1) @ v


def scaled_keys(q, k, v):
    return torch.softmax(q @ (k * 0.25).mT, -1) @ v


def rotary(q, k, v, angles):
    return F.scaled_dot_product_attention(rotated(q, angles), rotated(k, angles), v, is_causal=True)


def rotary_of_shared_heads(q, k, v, angles):
    keys = repeated(rotated(k, angles))
    return F.scaled_dot_product_attention(rotated(q, angles), keys, repeated(v), is_causal=True)


def normed(q, k, v, first, second):
    return attend(F.rms_norm(q, q.shape[-1:], first), F.rms_norm(k, k.shape[-1:], second), v)


def shared_heads(q, k, v, bias):
    scores = q @ repeated(k).mT * 0.25 + bias[:, None, None]
    return torch.softmax(scores.float(), -1).to(v.dtype) @ v.repeat_interleave(2, 1)


def grouped_by_einsum(q, k, v):
    scores = torch.einsum("bhgqd,bhkd->bhgqk", q.unflatten(1, (k.shape[1], -1)), k) * 0.25
    return torch.einsum("bhgqk,bhkd->bhgqd", scores.softmax(-1), v).flatten(1, 2)


def tokens_first_by_einsum(q, k, v):
    scores = torch.einsum("bthd,bshd->bhts", q, k) / 4
    steps = torch.arange(q.shape[1], device=q.device)
    scores = scores.masked_fill(steps[None, :] > steps[:, None], -1e9)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)


def projected(x, context, wq, wk, wv):
    q, k, v = (
        F.linear(of, w).unflatten(-1, (2, -1)).transpose(1, 2) for of, w in ((x, wq), (context, wk), (context, wv))
    )
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * 0.25
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v).transpose(1, 2).flatten(2)


def rotary_with_gqa(q, k, v, angles):
    """There are as many batches as queries to a head of keys."""
    return F.scaled_dot_product_attention(rotated(q, angles), k, v, is_causal=True, enable_gqa=True)


def tensors(*shapes):
    return [normal(*shape, dtype=BF16, seed=seed) for seed, shape in enumerate(shapes)]


HEADS, SHARED = (1, 4, 36, 16), (1, 2, 36, 16)
ANGLES = normal(36, 16, seed=9)
CASES = {  # a function, its inputs, the launches before and after attention
    "scaled query": (scaled_query, tensors(HEADS, HEADS, HEADS), []),
    "scaled keys": (scaled_keys, tensors(HEADS, HEADS, HEADS), ["elementwise"]),
    "rotary": (rotary, [*tensors(HEADS, HEADS, HEADS), ANGLES], ["elementwise"]),
    "rotary, shared heads": (
        rotary_of_shared_heads, [*tensors(HEADS, SHARED, SHARED), ANGLES], ["elementwise", "elementwise"],
    ),
    "rotary, gqa": (
        rotary_with_gqa, [*tensors((2, 8, 20, 16), (2, 4, 20, 16), (2, 4, 20, 16)), normal(20, 16)], ["elementwise"],
    ),
    "normed": (normed, tensors(HEADS, HEADS, HEADS, (16,), (16,)), ["rows"]),
    "shared heads": (shared_heads, tensors((2, *HEADS[1:]), (2, *SHARED[1:]), (2, *SHARED[1:]), (2, 36)), []),
    "grouped by einsum": (grouped_by_einsum, tensors(HEADS, SHARED, SHARED), []),
    "tokens first by einsum": (tokens_first_by_einsum, tensors((1, 36, 2, 16), (1, 36, 2, 16), (1, 36, 2, 16)), []),
    "projected": (
        projected, [*tensors((2, 36, 32), (2, 20, 24)), *(w / 6 for w in tensors((32, 32), (32, 24), (32, 24)))],
        ["contraction", "contraction", "contraction"],
    ),
}  # fmt: skip


@functools.cache
def plan_of(name):
    function, inputs, _ = CASES[name]
    return plan_kernel(trace_function(function, inputs), "sm_90a")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_launch(name):
    plan = plan_of(name)
    patterns = [launch.plan.pattern for launch in plan.launches] if isinstance(plan, ChainPlan) else [plan.pattern]
    assert sorted(patterns) == sorted(["attention", *CASES[name][2]])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_results(name, tmp_path):
    function, inputs, _ = CASES[name]
    plan = plan_of(name)
    check_product(plan, plan.configurations("sm_90a")[0], function, inputs, tmp_path)

"""Attention that returns the log-sum-exp of its scores beside the result, and partial results that are merged."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from cutesmith.patterns.attention.plan import match
from cutesmith.patterns.cutting.scores import with_plain_scores
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_blackwell, emulated_hopper, exactly, load, move, normal

slow = pytest.mark.slow
halves = partial(normal, dtype=torch.bfloat16)


def scored(q, k):
    return (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5


def above_their_logarithm(q, k, v):
    scores = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    logarithm = torch.logsumexp(scores, -1)
    return torch.exp(scores - logarithm[..., None]).to(v.dtype) @ v, logarithm


def causal(q, k, v):
    i, j = (torch.arange(x.shape[-2], device=x.device) for x in (q, k))
    scores = scored(q, k).masked_fill(j[None] > i[:, None], -torch.inf)
    return torch.logsumexp(scores, -1, keepdim=True), torch.softmax(scores, -1).to(v.dtype) @ v


def hidden_rows(q, k, v, mask):
    scores = scored(q, k).masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1).to(v.dtype) @ v, torch.logsumexp(scores, -1).to(v.dtype)


def divided_at_the_end(q, k, v):
    scores = scored(q, k)
    highest = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - highest)
    total = powers.sum(-1, keepdim=True)
    return ((powers.to(v.dtype) @ v) / total).to(q.dtype), (highest + torch.log(total)).squeeze(-1)


def by_einsum(q, k, v):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k).float()
    logarithm = torch.logsumexp(scores, -1)
    return torch.einsum("bhqk,bhkd->bhqd", torch.softmax(scores, -1).to(v.dtype), v), logarithm


def heads(queries, keys, width=16, lead=(2,), shared=None):
    return [halves(*lead, queries, width), *(halves(*(shared or lead), keys, width, seed=seed) for seed in (1, 2))]


def seen_but_for_one_row(queries, keys):
    mask = torch.rand(queries, keys, generator=torch.Generator().manual_seed(3)) < 0.7
    mask[1] = False
    return mask


CASES = {
    "above their logarithm": (above_their_logarithm, heads(70, 100, lead=(2, 3))),
    "causal, the first output": (causal, heads(70, 70)),
    "rows that see nothing": (hidden_rows, [*heads(9, 40), seen_but_for_one_row(9, 40)]),
    "in parts": (divided_at_the_end, heads(1, 1200)),
    "shared keys": (divided_at_the_end, heads(3, 100, lead=(2, 4), shared=(2, 1))),
    "by mma.sync": (divided_at_the_end, heads(33, 100, width=20)),
    "by einsum": (by_einsum, heads(9, 40, lead=(1, 2))),
}  # fmt: skip


def run(text, inputs, folder, gpu=emulated_hopper):
    with gpu():
        return [each.cpu() for each in load(text, folder).kernel_fn(*map(move, inputs))]


def assert_close(found, function, inputs):
    for ours, theirs in zip(found, exactly(function, inputs), strict=True):
        tolerance = 1e-5 if ours.dtype == torch.float32 else 1e-2
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_launch_returns_both(name, tmp_path):
    function, inputs = CASES[name]
    plan = match(with_plain_scores(trace_function(function, inputs)))
    text = plan.render(plan.configurations("sm_90a")[0])
    assert ("combine_kernel" in text) == (name == "in parts")
    assert_close(run(text, inputs, tmp_path), function, inputs)


@slow
def test_other_sizes_and_another_gpu(tmp_path):
    plan = plan_kernel(trace_function(causal, heads(70, 70)), "sm_100a", free_sizes=True)
    text = plan.render(plan.configurations("sm_100a")[0])
    for sizes in ((33, 90), (20, 20)):
        inputs = heads(*sizes, lead=(3,))
        assert_close(run(text, inputs, tmp_path, emulated_blackwell), causal, inputs)


def with_infinities(keys, width):
    """Rows whose scores are +inf alone, -inf alone, NaN, and others; then one key that gives both infinities."""
    q, k, v = heads(6, keys, width)
    q[:, :5, 1] = torch.tensor([torch.inf, -torch.inf, torch.nan, 1, -1])
    k[..., 1] = k[..., 1].abs() + 1
    yield [q, k, v]
    k = k.clone()
    k[:, keys // 2, 1] = torch.inf
    yield [q, k, v]


FORMS = {"wgmma": (70, 16), "mma.sync": (70, 20), "parts": (1200, 16)}


@pytest.mark.slow
@pytest.mark.parametrize("function", [above_their_logarithm, divided_at_the_end], ids=["torch", "by hand"])
@pytest.mark.parametrize("form", ["wgmma", *(pytest.param(form, marks=slow) for form in ("mma.sync", "parts"))])
def test_infinite_scores_give_what_pytorch_gives(function, form, tmp_path):
    """Infinity of `torch.logsumexp`, NaN of a maximum that is added to a logarithm."""
    cases = list(with_infinities(*FORMS[form]))
    if form == "parts":
        cases = [[q[:, row : row + 1], k, v] for q, k, v in cases for row in range(5)]
    plan = match(with_plain_scores(trace_function(function, cases[0])))
    with emulated_hopper():
        kernel_fn = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path).kernel_fn
        for inputs in cases:
            assert_close([each.cpu() for each in kernel_fn(*map(move, inputs))], function, inputs)


def in_two_halves(q, k1, v1, k2, v2):
    (first, one), (second, two) = above_their_logarithm(q, k1, v1), above_their_logarithm(q, k2, v2)
    whole = torch.logaddexp(one, two)
    shares = [torch.exp(each - whole)[..., None] for each in (one, two)]
    return (first * shares[0] + second * shares[1]).to(q.dtype), whole


@slow
def test_halves_of_the_keys_are_merged(tmp_path):
    inputs = [*heads(70, 100), *heads(70, 60)[1:]]
    plan = plan_kernel(trace_function(in_two_halves, inputs), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["attention"] * 2 + ["elementwise"] * 2
    assert_close(run(plan.render(plan.configurations("sm_90a")[0]), inputs, tmp_path), in_two_halves, inputs)


@pytest.mark.slow
def test_a_sink_is_no_part_of_the_log_sum_exp():
    """A launch of attention would give that of the scores and the sink."""

    def function(q, k, v, sink):
        scores = scored(q, k)
        with_sink = torch.cat([scores, sink.expand(*scores.shape[:-1], 1).float()], -1)
        return torch.softmax(with_sink, -1)[..., :-1].to(v.dtype) @ v, torch.logsumexp(scores, -1)

    plan = plan_kernel(trace_function(function, [*heads(20, 40), halves(2, 20, 1)]), "sm_90a")
    assert plan.pattern != "attention"

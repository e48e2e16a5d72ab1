"""Attention as models write it: sinks, masks of batches and heads apart, scaled factors; it is one launch in each."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.cutting.scores import with_joined_factors, with_plain_scores
from cutesmith.patterns.graph.joined import with_parts_of_joined
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import check_product, emulated, exactly, load, move, normal

BF16 = torch.bfloat16


def repeated(x, groups):
    batch, heads, *matrix = x.shape
    return x[:, :, None].expand(batch, heads, groups, *matrix).reshape(batch, heads * groups, *matrix)


def sink_as_a_column(q, k, v, mask, sinks):
    """As transformers has it for gpt-oss: the row's maximum is taken off twice."""
    k, v = (repeated(x, q.shape[1] // x.shape[1]) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5 + mask
    columns = sinks.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[-2], -1)
    scores = torch.cat([scores, columns], -1)
    scores = scores - scores.max(-1, keepdim=True).values
    return torch.softmax(scores, -1)[..., :-1] @ v


def sink_of_tokens_first(q, k, v, sinks, window=24):
    """As OpenAI has it: tokens before heads, and a mask that two triangles make."""
    tokens, heads, groups, _ = q.shape
    k, v = (x[:, :, None].expand(-1, -1, groups, -1) for x in (k, v))
    mask = torch.triu(q.new_full((tokens, tokens), -math.inf), diagonal=1)
    mask += torch.tril(mask.new_full((tokens, tokens), -math.inf), diagonal=-window)
    scores = torch.einsum("qhmd,khmd->hmqk", q, k) * 0.25 + mask[None, None]
    columns = sinks.reshape(heads, groups, 1, 1).expand(-1, -1, tokens, -1)
    weights = torch.softmax(torch.cat([scores, columns], -1), -1)[..., :-1]
    return torch.einsum("hmqk,khmd->qhmd", weights, v).reshape(tokens, -1)


def sink_before_the_keys(q, k, v, sinks):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    columns = sinks.view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat([columns, scores], -1), -1)[..., 1:] @ v


def sink_in_the_sum(q, k, v, sinks, window=24):
    i, j = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(k.shape[-2], device=q.device)
    scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
    scores = scores.masked_fill((j > i) | (i - j >= window), -math.inf)
    sink = sinks.float()[:, None, None]
    highest = torch.maximum(scores.amax(-1, keepdim=True), sink)
    powers = torch.exp(scores - highest)
    return (powers / (powers.sum(-1, keepdim=True) + torch.exp(sink - highest))).to(v.dtype) @ v


def sink_of_zero(q, k, v):
    scores = (q @ k.mT).float()
    highest = scores.amax(-1, keepdim=True).clamp(min=0)
    powers = torch.exp(scores - highest)
    return (powers / (powers.sum(-1, keepdim=True) + torch.exp(-highest))).to(v.dtype) @ v


def sink_of_each_query(q, k, v, sinks):
    """Each row of queries has a sink of its own, and a function of the scores leaves no scale to the exponents."""
    scores = torch.tanh(q @ k.mT * 0.25)
    return torch.softmax(torch.cat([scores, sinks[..., None]], -1), -1)[..., :-1] @ v


def shifted(q, k, v):
    scores = q @ k.mT * 0.25
    return torch.softmax(scores - scores.amax(-1, keepdim=True), -1) @ v


def mask_of_batches(q, k, v, mask):
    """As BART has it: matrices of all heads in one dimension but where the mask is added."""
    heads = q.shape[0] // mask.shape[0]
    scores = torch.bmm(q, k.transpose(1, 2)).view(-1, heads, q.shape[1], k.shape[1]) + mask
    return torch.bmm(torch.softmax(scores.view(-1, *scores.shape[2:]), -1), v)


def alibi_by_baddbmm(q, k, v, alibi, mask):
    """As BLOOM has it."""
    (batch, heads, *_), flat = q.shape, [x.flatten(0, 1) for x in (q, k, v)]
    scores = alibi.baddbmm(flat[0], flat[1].mT, beta=1.0, alpha=0.25).view(batch, heads, q.shape[2], -1) + mask
    weights = F.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(weights.flatten(0, 1), flat[2]).view(q.shape)


def windows_of_images(q, k, v, bias, mask):
    """As Swin has it: each image has several windows, whose masks differ."""
    scores = (q * q.shape[-1] ** -0.5) @ k.mT + bias
    scores = scores.view(-1, mask.shape[0], *scores.shape[1:]) + mask[:, None]
    return torch.softmax(scores.view(-1, *scores.shape[2:]), -1) @ v


def scaled_by_an_argument(q, k, v, scale: float):
    return torch.softmax((q * scale) @ k.mT, -1) @ v


def heads_side_by_side(q, k, v):
    """The result lies as the next product reads it: (batch, queries, heads * width)."""
    k, v = (repeated(x, q.shape[1] // x.shape[1]) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def tokens_first(q, k, v):
    """The result is turned and lies dense, without another view."""
    return (torch.softmax(q @ k.mT, -1) @ v).permute(2, 0, 1, 3).contiguous()


def behind_a_cache(q, k_cache, v_cache, k, v):
    """A step of decoding whose caches grow elsewhere."""
    k, v = (torch.cat(pair, 2).repeat_interleave(q.shape[1] // k.shape[1], 1) for pair in ((k_cache, k), (v_cache, v)))
    return F.scaled_dot_product_attention(q, k, v)


def masked_behind_a_cache(q, k_cache, v_cache, k, v, bias):
    keys, values = torch.cat([k_cache, k], -2), torch.cat([v_cache, v], -2)
    i, j = torch.arange(q.shape[-2], device=q.device)[:, None], torch.arange(keys.shape[-2], device=q.device)
    scores = torch.where(j - k_cache.shape[-2] <= i, q @ keys.mT * 0.25 + bias, -math.inf)
    return torch.softmax(scores, -1) @ values


def tensors(*shapes):
    return [normal(*shape, dtype=BF16, seed=seed) for seed, shape in enumerate(shapes)]


HEADS, FLAT = (2, 4, 37, 16), (8, 37, 16)
CASES = {
    "sink, column": (sink_as_a_column, tensors(HEADS, (2, 2, 37, 16), (2, 2, 37, 16), (2, 1, 37, 37), (4,))),
    "sink, first column": (sink_before_the_keys, tensors((2, 3, 9, 16), (2, 3, 70, 16), (2, 3, 70, 16), (3,))),
    "sink, tokens first": (sink_of_tokens_first, tensors((37, 2, 3, 16), (37, 2, 16), (37, 2, 16), (6,))),
    "sink, sum": (sink_in_the_sum, tensors((1, 2, 150, 32), (1, 2, 150, 32), (1, 2, 150, 32), (2,))),
    "sink, zero": (sink_of_zero, tensors((2, 20, 16), (2, 33, 16), (2, 33, 16))),
    "sink, queries": (sink_of_each_query, tensors((2, 20, 16), (2, 33, 16), (2, 33, 16), (2, 20))),
    "shifted": (shifted, tensors(HEADS, HEADS, HEADS)),
    "mask of batches": (mask_of_batches, tensors(FLAT, FLAT, FLAT, (2, 1, 37, 37))),
    "alibi": (alibi_by_baddbmm, tensors(HEADS, HEADS, HEADS, (8, 1, 37), (2, 1, 37, 37))),
    "windows": (windows_of_images, tensors((6, 2, 9, 16), (6, 2, 9, 16), (6, 2, 9, 16), (2, 9, 9), (3, 9, 9))),
    "side by side": (heads_side_by_side, tensors((2, 4, 37, 32), (2, 2, 37, 32), (2, 2, 37, 24))),
    "tokens first": (tokens_first, tensors((2, 3, 20, 16), (2, 3, 20, 16), (2, 3, 20, 18))),
    "cache": (behind_a_cache, tensors((2, 4, 1, 16), *[(2, 2, 150, 16)] * 2, *[(2, 2, 1, 16)] * 2)),
    "cache, mask": (
        masked_behind_a_cache,
        tensors((2, 33, 16), (2, 70, 16), (2, 70, 24), (2, 90, 16), (2, 90, 24), (33, 160)),
    ),
    "scaled": (scaled_by_an_argument, [*tensors(HEADS, HEADS, HEADS), 0.3]),
}


@functools.cache
def graph_of(name):
    return trace_function(*CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_one_launch(name):
    assert plan_kernel(graph_of(name), "sm_90a").pattern == "attention"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "name"),
    [(arch, name) for arch in ("sm_80", "sm_90a") for name in CASES],
)
def test_results(arch, name, tmp_path):
    function, inputs = CASES[name]
    plan = plan_kernel(graph_of(name), arch)
    check_product(plan, plan.configurations(arch)[0], function, inputs, tmp_path, arch)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CASES)
def test_what_is_said_in_another_way_is_the_same(name):
    function, inputs = CASES[name]
    graph = with_joined_factors(with_plain_scores(with_parts_of_joined(graph_of(name))))
    (ours,), (theirs,) = interpret(graph, list(inputs)), exactly(function, inputs)
    torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_a_query_that_sees_no_key_has_its_sink_alone(tmp_path):
    q, k, v, mask, sinks = CASES["sink, column"][1]
    mask = mask.clone()
    mask[1, :, 5] = -math.inf
    plan = plan_kernel(graph_of("sink, column"), "sm_80")
    check_product(plan, plan.configurations("sm_80")[0], sink_as_a_column, (q, k, v, mask, sinks), tmp_path, "sm_80")


@pytest.mark.slow
def test_sinks_far_from_all_scores(tmp_path):
    """They have all the weight, or none; each query has another than its neighbour."""
    q, k, v = tensors((2, 20, 16), (2, 33, 16), (2, 33, 16))
    inputs = (q, k, v, torch.tensor([1e4, -1e4, -math.inf, 0.5], dtype=BF16).repeat(10).view(2, 20))
    plan = plan_kernel(graph_of("sink, queries"), "sm_80")
    check_product(plan, plan.configurations("sm_80")[0], sink_of_each_query, inputs, tmp_path, "sm_80")


@pytest.mark.slow
def test_the_product_behind_reads_heads_side_by_side(tmp_path):
    def projected(q, k, v, w):
        return heads_side_by_side(q, k, v) @ w

    inputs = [*tensors((2, 4, 37, 32), (2, 2, 37, 32), (2, 2, 37, 32)), normal(128, 48, dtype=BF16) / 8]
    plan = plan_kernel(trace_function(projected, inputs), "sm_90a")
    assert [launch.plan.pattern for launch in plan.launches] == ["attention", "contraction"]
    check_product(plan, plan.configurations("sm_90a")[0], projected, inputs, tmp_path)


CACHE_SIZES = [((1, 2, 1, 16), (1, 2, 40, 16), (1, 2, 3, 16)), ((3, 2, 5, 16), (3, 2, 128, 16), (3, 2, 1, 16))]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_cache_may_have_any_length(arch, tmp_path):
    function = lambda q, kc, vc, k, v: F.scaled_dot_product_attention(q, torch.cat([kc, k], 2), torch.cat([vc, v], 2))  # noqa: E731
    plan = plan_kernel(
        trace_function(function, tensors((2, 3, 1, 16), *[(2, 3, 37, 16)] * 2, *[(2, 3, 1, 16)] * 2)), arch
    )
    assert plan.pattern == "attention"
    with emulated(arch):
        kernel_fn = load(plan.render(plan.configurations(arch)[0]), tmp_path).kernel_fn
        for q, cache, new in CACHE_SIZES:
            inputs = tensors(q, cache, cache, new, new)
            (theirs,) = exactly(function, inputs)
            torch.testing.assert_close(kernel_fn(*map(move, inputs)).cpu(), theirs, rtol=1e-2, atol=1e-2)
        with pytest.raises(ValueError):
            kernel_fn(*map(move, tensors(q, cache, (3, 2, 127, 16), new, new)))


@pytest.mark.slow
def test_new_keys_that_are_computed_are_stored_and_the_cache_is_read_where_it_lies(tmp_path):
    def step(x, k_cache, v_cache, wq, wk, wv, angles):
        q, k, v = ((x @ w).unflatten(-1, (2, 16)).transpose(1, 2) for w in (wq, wk, wv))
        q, k = (x * angles.cos() + torch.cat((-x[..., 8:], x[..., :8]), -1) * angles.sin() for x in (q, k))
        return F.scaled_dot_product_attention(q, torch.cat([k_cache, k], 2), torch.cat([v_cache, v], 2))

    weights = [each / 6 for each in tensors(*[(32, 32)] * 3)]
    inputs = [*tensors((2, 3, 32), (2, 2, 37, 16), (2, 2, 37, 16)), *weights, normal(3, 16, dtype=BF16)]
    plan = plan_kernel(trace_function(step, inputs), "sm_90a")
    (attention,) = [launch.plan for launch in plan.launches if launch.plan.pattern == "attention"]
    assert attention.problem.more and attention.problem.k.shape[-1] == 37
    check_product(plan, plan.configurations("sm_90a")[0], step, inputs, tmp_path)


def test_a_result_that_is_turned_and_not_dense_is_a_view_of_a_dense_one():
    """PyTorch's lies as the product leaves it."""
    turned = lambda q, k, v: F.scaled_dot_product_attention(q, k, v).transpose(1, 2)  # noqa: E731
    plan = plan_kernel(trace_function(turned, tensors(HEADS, HEADS, HEADS)), "sm_90a")
    (launch,) = plan.launches
    assert not launch.plan.problem.result.is_reordered


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_differential_attention_is_two_attentions(arch, tmp_path):
    def differential(q, k, r, s, v, share: float):
        weights = torch.softmax(q @ k.mT * 0.25, -1) - share * torch.softmax(r @ s.mT * 0.25, -1)
        return weights @ v

    inputs = [*tensors(*[(2, 3, 37, 16)] * 4, (2, 3, 37, 32)), 0.4]
    plan = plan_kernel(trace_function(differential, inputs), arch)
    assert [launch.plan.pattern for launch in plan.launches] == ["attention", "attention", "elementwise"]
    check_product(plan, plan.configurations(arch)[0], differential, inputs, tmp_path, arch)


def is_attention(function, inputs):
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    return "attention" in [launch.plan.pattern for launch in plan.launches] if isinstance(plan, ChainPlan) else True


@pytest.mark.slow
def test_what_only_looks_like_a_sink_is_something_else():
    def one_in_the_sum(q, k, v):  # a sink as high as the maximum: no score that is known before the others
        scores = q @ k.mT
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        return (powers / (powers.sum(-1, keepdim=True) + 1)) @ v

    def kept_column(q, k, v, sinks):  # the first key is left out, and the sink has a value
        scores = torch.cat([q @ k.mT, sinks[..., None]], -1)
        return torch.softmax(scores, -1)[..., 1:] @ v

    q, k, v = tensors((2, 20, 16), (2, 33, 16), (2, 33, 16))
    assert not is_attention(one_in_the_sum, (q, k, v))
    assert not is_attention(kept_column, (q, k, v, *tensors((2, 20))))


def test_a_slice_of_so_many_elements_is_a_part_for_the_traced_sizes_alone():
    def function(q, k, v, sinks, count):
        scores = torch.cat([q @ k.mT, sinks[..., None]], -1)
        return torch.softmax(scores, -1)[..., :count] @ v

    inputs = tensors((2, 20, 16), (2, 33, 16), (2, 33, 16), (2, 20))
    free, fixed = (
        with_parts_of_joined(trace_function(lambda *x, end=end: function(*x, end), inputs)) for end in (-1, 33)
    )
    assert free.holds_for_other_sizes and free.checked != fixed.checked

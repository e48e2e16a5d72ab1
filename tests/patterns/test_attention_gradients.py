"""Gradients of attention through `torch.func`, which no matrix of scores in memory is needed for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.func import vjp

from cutesmith.devices import parse_arch
from cutesmith.patterns.attention.configurations import AttentionGradientConfiguration
from cutesmith.patterns.attention.gradient_plan import AttentionGradientPlan, refusals
from cutesmith.patterns.cutting.attention_gradients import with_attention_gradients
from cutesmith.patterns.cutting.cover import cut
from cutesmith.patterns.match import AROUND_PRODUCTS, plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import emulated_hopper, exactly, load, move, normal

slow = pytest.mark.slow
pytestmark = pytest.mark.timeout(600)
halves = partial(normal, dtype=torch.bfloat16)


def heads(queries, keys, width=64, lead=(2,), shared=None, dtype=torch.bfloat16):
    """Queries, keys, values, and the gradient of the result."""
    shapes = (*lead, queries), (*(shared or lead), keys), (*(shared or lead), keys), (*lead, queries)
    return [normal(*shape, width, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


def gradients(function, q, k, v, dout):
    return vjp(function, q, k, v)[1](dout)


def with_result(function, q, k, v, dout):
    result, backward = vjp(function, q, k, v)
    return result, *backward(dout)


def written_out(q, k, v, window=None):
    """Causal attention, of the last `window` keys where that is given."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    i, j = (torch.arange(x.shape[-2], device=q.device) for x in (q, k))
    hidden = j[None] > i[:, None]
    if window:
        hidden = hidden | (i[:, None] - j[None] >= window)
    return torch.softmax(scores.masked_fill(hidden, -torch.inf).float(), -1).to(q.dtype) @ v


def masked(q, k, v, dout, mask):
    return gradients(partial(attention, attn_mask=mask), q, k, v, dout)


def sloped(q, k, v, dout, slopes):
    """Causal attention with a bias that falls with the distance, written out."""

    def function(q, k, v):
        i, j = (torch.arange(x.shape[-2], device=q.device) for x in (q, k))
        scores = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5 + slopes * (j[None] - i[:, None])
        return torch.softmax(scores.masked_fill(j[None] > i[:, None], -torch.inf), -1).to(q.dtype) @ v

    return gradients(function, q, k, v, dout)


def hidden_by(mask):
    """The mask, one row of which hides all keys."""
    mask[..., 3, :] = False if mask.dtype == torch.bool else -torch.inf
    return mask


attention = F.scaled_dot_product_attention
causal = partial(attention, is_causal=True)
grouped = partial(attention, is_causal=True, enable_gqa=True)
CASES = {
    "all keys": (partial(gradients, attention), heads(40, 150, lead=(2, 1))),
    "causal, heads of 128, float16": (partial(gradients, causal), heads(140, 140, 128, (1, 2), dtype=torch.float16)),
    "grouped, and the result": (partial(with_result, grouped), heads(40, 140, lead=(1, 2), shared=(1, 1))),
    "added mask": (masked, [*heads(40, 150, lead=(2, 3)), hidden_by(halves(2, 1, 40, 150, seed=7))]),
    "mask of truths": (masked, [*heads(70, 150, lead=(1, 2)), hidden_by(halves(70, 150, seed=7) < 0.5)]),
    "slopes, heads of 128": (sloped, [*heads(70, 70, 128, lead=(1, 2)), halves(2, 1, 1, seed=7).float()]),
    "a window, written out": (partial(with_result, partial(written_out, window=40)), heads(200, 200, lead=(1, 1))),
}  # fmt: skip


def planned(function, inputs, *, free_sizes=False):
    """The chain with gradients of attention, whether or not it is the fastest for such small inputs."""
    graph = replace(trace_function(function, inputs), free_sizes=free_sizes)
    changed = with_attention_gradients(graph)
    assert changed is not graph
    return cut(changed, AROUND_PRODUCTS)


def assert_close(found, function, inputs):
    for ours, theirs in zip(found, exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=2e-2, atol=2e-2)


def run(plan, inputs, folder):
    with emulated_hopper():
        text = plan.render(plan.configurations("sm_90a")[0])
        return [each.cpu() for each in load(text, folder).kernel_fn(*map(move, inputs))]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_launches_make_them(name):
    function, inputs = CASES[name]
    assert [launch.plan.pattern for launch in planned(function, inputs).launches] == ["attention", "attention_gradient"]


@slow
@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_pytorch(name, tmp_path):
    function, inputs = CASES[name]
    assert_close(run(planned(function, inputs), inputs, tmp_path), function, inputs)


@slow
def test_a_key_that_all_queries_score_as_infinitely_low_takes_no_gradient(tmp_path):
    """A tile of queries that is not full has zeros behind the last one, whose products with -Inf are NaN."""
    function = partial(gradients, attention)
    q, k, v, dout = heads(40, 150, lead=(2, 1))
    q[..., 0], k[..., 149, 0] = 1.0, -torch.inf
    inputs = q, k, v, dout
    _, of_keys, of_values = run(planned(function, inputs), inputs, tmp_path)
    assert not of_keys[..., 149, :].any() and not of_values[..., 149, :].any()
    assert_close((of_keys, of_values), lambda *x: function(*x)[1:], inputs)


@slow
def test_sizes_of_which_a_window_hides_rows_are_refused(tmp_path):
    """Their gradients are NaN in PyTorch."""
    function = partial(gradients, partial(written_out, window=40))
    plan = planned(function, heads(70, 70, lead=(1, 1)), free_sizes=True)
    with pytest.raises(ValueError, match="queries that each see a key: queries = 140, keys = 70"):
        run(plan, heads(140, 70, lead=(1, 1)), tmp_path)


@slow
def test_other_sizes(tmp_path):
    function = partial(gradients, causal)
    plan = planned(function, heads(140, 140, lead=(2, 3)), free_sizes=True)
    inputs = heads(70, 130, lead=(1, 2))
    assert_close(run(plan, inputs, tmp_path), function, inputs)


@pytest.mark.slow
def test_the_band_leaves_out_half_of_a_causal_backward():
    whole, half = (
        planned(partial(gradients, function), heads(2048, 2048)).launches[-1].plan.seconds()
        for function in (attention, causal)
    )
    assert 0.45 * whole < half < 0.65 * whole


def test_large_scores_never_reach_memory():
    inputs = [torch.empty_strided((4, 16, 4096, 128), (0, 0, 128, 1), dtype=torch.bfloat16) for _ in range(4)]
    plan = plan_kernel(trace_function(partial(gradients, causal), [x.contiguous() for x in inputs]), "sm_90a")
    assert [type(launch.plan) for launch in plan.launches][-1] is AttentionGradientPlan


@pytest.mark.slow
def test_a_tile_that_does_not_fit_is_refused():
    problem = planned(*CASES["all keys"]).launches[-1].plan.problem
    sm = parse_arch("sm_90a").sm
    assert not [*refusals(problem, AttentionGradientConfiguration(128, 128, 2), sm)]
    assert "64 x 64" in " ".join(refusals(problem, AttentionGradientConfiguration(128, 64, 2), sm))
    assert "shared memory" in " ".join(refusals(problem, AttentionGradientConfiguration(128, 128, 4), sm))
    assert "wgmma" in " ".join(refusals(problem, AttentionGradientConfiguration(128, 128, 2), parse_arch("sm_80").sm))


def capped(q, k, v):
    return torch.softmax(torch.tanh(q @ k.transpose(-1, -2)), -1) @ v


REFUSED = {
    "heads of 32": (attention, heads(70, 70, 32)),
    "another function of scores": (capped, heads(70, 70)),
    "queries that see no key": (partial(written_out, window=20), heads(140, 70)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_others_stay_several_launches(name):
    function, inputs = REFUSED[name]
    plan = plan_kernel(trace_function(partial(gradients, function), inputs), "sm_90a")
    assert "attention_gradient" not in [launch.plan.pattern for launch in plan.launches]


def test_float32_results_are_not_rounded():
    """The function keeps the gradient in float32: weights of 16 bits would lose what it asks for."""

    def function(q, k, v, dout):
        return vjp(lambda q: torch.softmax(q @ k.float().mT, -1) @ v.float(), q.float())[1](dout.float())

    graph = trace_function(function, heads(70, 70))
    assert with_attention_gradients(graph) is graph

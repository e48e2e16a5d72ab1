"""A kernel for attention may round the weights of its softmax to the values' type, as tensor cores want them.

The references do so themselves (they refused such kernels while they multiplied in float32): here FlashAttention's
arithmetic, weights not yet divided by their sum and rounded once, is held against each task as the judge does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cutesmith import resources
from cutesmith.judge.reference_side.comparison import compare
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.problem_calls import load_problem, native_outputs
from cutesmith.judge.reference_side.tolerance import tolerance_for
from cutesmith.recording.facade import cuda_as_cpu

Narrow = Callable[[torch.Tensor], torch.Tensor]


def once(dtype: torch.dtype) -> Narrow:
    return lambda tensor: tensor.to(dtype).float()


def scores_of(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query.float() @ key.float().transpose(-1, -2) * query.shape[-1] ** -0.5


def mixed(scores: torch.Tensor, value: torch.Tensor, narrow: Narrow) -> torch.Tensor:
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return narrow(weights) @ value.float() / weights.sum(-1, keepdim=True)


def distances(length: int) -> torch.Tensor:
    places = torch.arange(length)
    return places[None, :] - places[:, None]


def alibi(narrow, query, key, value, slopes):
    distance = distances(query.shape[2])
    scores = scores_of(query, key) + slopes.float()[:, None, None] * distance
    return mixed(scores.masked_fill(distance > 0, -math.inf), value, narrow)


def window_bias(narrow, query, key, value, bias):
    return mixed(scores_of(query, key) + bias.float(), value, narrow)


def sliding(narrow, query, key, value, window):
    distance = distances(query.shape[2])
    hidden = (distance > 0) | (distance <= -window)
    return mixed(scores_of(query, key).masked_fill(hidden, -math.inf), value, narrow)


def varlen(narrow, query, key, value, borders):
    sequence = torch.searchsorted(borders, torch.arange(len(query)), right=True)
    seen = (sequence[:, None] == sequence[None, :]) & (distances(len(query)) <= 0)
    query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    return mixed(scores_of(query, key).masked_fill(~seen, -math.inf), value, narrow).transpose(0, 1)


def latent(narrow, query, rotary_query, latents, rotary, scale):
    scores = query.float() @ latents.float().transpose(1, 2) + rotary_query.float() @ rotary.float().transpose(1, 2)
    return mixed(scale * scores, latents, narrow)


def grouped(narrow, query, key, value, lengths):
    """query [batch, heads, width]; key, value [batch, tokens, key heads, width]."""
    key, value = (tensor.transpose(1, 2) for tensor in (key, value))
    scores = scores_of(query.unflatten(1, (key.shape[1], -1)), key)
    beyond = torch.arange(key.shape[2]) >= lengths[:, None]
    return mixed(scores.masked_fill(beyond[:, None, None, :], -math.inf), value, narrow).flatten(1, 2)


def paged(narrow, query, keys, values, tables, lengths):
    return grouped(narrow, query, *(cache[tables].flatten(1, 2) for cache in (keys, values)), lengths)


def paged_int8(narrow, query, keys, key_scales, values, value_scales, tables):
    caches = ((keys, key_scales), (values, value_scales))
    key, value = ((cache[tables].float() * s[tables].unsqueeze(-1)).flatten(1, 2) for cache, s in caches)
    return grouped(narrow, query, key, narrow(value), torch.full((len(query),), key.shape[1]))


def backward(narrow, query, key, value, output, logsumexp, gradient):
    hidden = distances(query.shape[2]) > 0
    weights = torch.exp(scores_of(query, key).masked_fill(hidden, -math.inf) - logsumexp.unsqueeze(-1))
    upstream = gradient.float()
    delta = (upstream * output.float()).sum(-1, keepdim=True)
    of_scores = narrow(weights * (upstream @ value.float().transpose(-1, -2) - delta)) * query.shape[-1] ** -0.5
    products = (of_scores @ key.float(), of_scores.transpose(-1, -2) @ query.float())
    return *products, narrow(weights).transpose(-1, -2) @ upstream


TASKS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "level3/attention_alibi": (alibi, {"batch": 1, "heads": 4, "length": 256}),
    "level3/window_attention_bias": (window_bias, {"windows": 256}),
    "level4/attention_sliding_window": (sliding, {"heads": 4, "length": 768, "window": 256}),
    "level4/attention_varlen": (varlen, {"tokens": 768, "heads": 4, "sequences": 5}),
    "level4/latent_attention_decode": (latent, {"batch": 1, "heads": 64, "tokens": 1024}),
    "level4/paged_attention_decode": (paged, {"batch": 4, "most": 32}),
    "level4/paged_attention_int8_cache": (paged_int8, {"batch": 4, "heads": 8, "key_heads": 2, "most": 8}),
    "level4/attention_backward": (backward, {"heads": 4, "length": 384}),
}


def problems(task: str, dtype: torch.dtype | None) -> list[str]:
    """What the judge says of FlashAttention's arithmetic with weights of `dtype`, None for the task's own."""
    kernel, sizes = TASKS[task]
    torch.manual_seed(0)
    with cuda_as_cpu():
        problem = load_problem(resources.tasks() / f"{task}.py")
        values = problem.get_inputs(**sizes)
        native, _ = native_outputs(problem.reference_fn, values)
        exact = in_float64(problem.reference_fn, values)
        made = kernel(once(dtype or native[0].dtype), *values)
    exact, made = (sides if isinstance(sides, tuple) else (sides,) for sides in (exact, made))
    tolerance = tolerance_for(native[0].dtype, None, None)
    judged = (compare(i, m.to(n.dtype), n, e, tolerance) for i, (m, n, e) in enumerate(zip(made, native, exact)))
    return [comparison.violation.text for comparison in judged if comparison.violation]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_weights_rounded_once_pass(task):
    assert problems(task, None) == []


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_weights_in_8_bits_do_not(task):
    assert problems(task, torch.float8_e4m3fn)

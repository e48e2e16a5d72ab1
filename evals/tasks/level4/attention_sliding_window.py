"""Causal attention over the last 1024 tokens only, as in Mistral's and Gemma's local layers: 16 heads of 128."""

import torch

LEVEL = 4
TAGS = ("attention", "causal", "window", "bf16", "mistral")


def reference_fn(query, key, value, window):
    """Tensors [batch, heads, length, width]; a token sees itself and the window - 1 before it."""
    places = torch.arange(query.shape[2], device=query.device)
    distance = places[:, None] - places[None, :]
    scores = query.float() @ key.float().transpose(-1, -2) * query.shape[-1] ** -0.5
    hidden = (distance < 0) | (distance >= window)
    weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    return weights.to(value.dtype) @ value


def ALGORITHMIC_FLOPS(query, key, value, window):
    batch, heads, length, width = query.shape
    full = min(window, length)
    return 4 * batch * heads * width * (full * (full + 1) // 2 + (length - full) * full)


def get_inputs(batch=1, heads=16, length=8192, width=128, window=1024):
    return [*(torch.randn(batch, heads, length, width, device="cuda").bfloat16() for _ in range(3)), window]


def get_input_sets():
    for sizes in ((1, 2, 128, 64, 32), (2, 3, 33, 32, 7), (1, 1, 9, 128, 1), (1, 2, 20, 16, 64)):
        yield get_inputs(*sizes)

"""Causal attention with linear biases (ALiBi) as in BLOOM-7B1: 32 heads of 128, each with a slope of its own."""

import torch

LEVEL = 3
TAGS = ("attention", "causal", "bias", "bf16", "bloom")


def reference_fn(query, key, value, slopes):
    """Tensors [batch, heads, length, width], slopes [heads] fp32; key j biases query i by slope * (j - i)."""
    places = torch.arange(query.shape[2], device=query.device)
    distance = places[None, :] - places[:, None]
    scores = query.float() @ key.float().transpose(-1, -2) * query.shape[-1] ** -0.5
    scores = scores + slopes.float()[:, None, None] * distance
    weights = torch.softmax(scores.masked_fill(distance > 0, float("-inf")), dim=-1)
    return weights.to(value.dtype) @ value


def ALGORITHMIC_FLOPS(query, key, value, slopes):
    batch, heads, length, width = query.shape
    return 4 * batch * heads * width * length * (length + 1) // 2


def get_inputs(batch=2, heads=32, length=2048, width=128):
    tensors = [torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    return [*tensors, 2.0 ** (-8.0 * torch.rand(heads, device="cuda"))]


def get_input_sets():
    for sizes in ((1, 2, 128, 64), (2, 3, 33, 32), (1, 1, 1, 128)):
        yield get_inputs(*sizes)

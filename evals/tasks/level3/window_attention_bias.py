"""Attention in 7 x 7 windows with a learned bias for each pair of places, as in the first stage of Swin-T."""

import torch

LEVEL = 3
TAGS = ("attention", "bias", "odd", "fp16", "swin")


def reference_fn(query, key, value, bias):
    """Tensors [windows, heads, places, width], bias [heads, places, places]."""
    scores = query.float() @ key.float().transpose(-1, -2) * query.shape[-1] ** -0.5
    weights = torch.softmax(scores + bias.float(), dim=-1)
    return weights.to(value.dtype) @ value


def get_inputs(windows=4096, heads=3, places=49, width=32):
    shape = (windows, heads, places, width)
    tensors = [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3)]
    return [*tensors, torch.randn(heads, places, places, device="cuda", dtype=torch.float16)]


def get_input_sets():
    for sizes in ((1, 3, 49, 32), (5, 2, 64, 32), (3, 1, 9, 16)):
        yield get_inputs(*sizes)

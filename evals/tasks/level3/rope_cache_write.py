"""Rotary embedding of queries and keys, and the write of keys and values into the slots of a new cache.

Llama-3-8B: 32 and 8 heads of 128, halves rotated; token t goes to row slots[t], each row being taken once.
"""

import torch

LEVEL = 3
TAGS = ("rope", "cache", "scatter", "bf16", "llama")
DERIVED_SHAPES = False  # slots are a permutation of the tokens
EMULATED_SIZES = {"tokens": 32}


def rotate(x, cosine, sine):
    left, right = x.float().chunk(2, dim=-1)
    cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1).to(x.dtype)


def reference_fn(query, key, value, cosine, sine, slots):
    """query, key, value [tokens, heads, width], cosine and sine [tokens, width / 2] fp32, slots [tokens] int64."""
    in_order = torch.arange(len(slots), device=slots.device)
    torch._assert_async((slots.sort().values == in_order).all(), "slots must be a permutation")
    source = torch.argsort(slots)
    return rotate(query, cosine, sine), rotate(key, cosine, sine)[source], value[source]


def get_inputs(tokens=16384, heads=32, key_heads=8, width=128):
    def draw(count):
        return torch.randn(tokens, count, width, device="cuda", dtype=torch.bfloat16)

    angles = 6.28 * torch.rand(tokens, width // 2, device="cuda")
    slots = torch.randperm(tokens, device="cuda")
    return [draw(heads), draw(key_heads), draw(key_heads), angles.cos(), angles.sin(), slots]


def get_input_sets():
    for sizes in ((1, 4, 1, 128), (33, 6, 2, 64), (7, 2, 2, 16)):
        yield get_inputs(*sizes)

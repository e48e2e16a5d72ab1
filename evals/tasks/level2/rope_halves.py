"""Rotary position embedding on the two halves of each head, returned as two tensors."""

import torch

LEVEL = 2
TAGS = ("elementwise", "bf16", "strided", "broadcast", "outputs")


def reference_fn(x, cosine, sine):
    left, right = x.chunk(2, dim=-1)
    return left * cosine - right * sine, right * cosine + left * sine


def get_inputs(batch=4, length=4096, heads=32, head_size=128):
    bf16 = {"device": "cuda", "dtype": torch.bfloat16}
    angle = torch.rand(length, 1, head_size // 2, device="cuda") * 6.28
    x = torch.randn(batch, length, heads, head_size, **bf16)
    return [x, torch.cos(angle).to(torch.bfloat16), torch.sin(angle).to(torch.bfloat16)]


def get_input_sets():
    for batch, length, heads, head_size in ((1, 1, 1, 2), (2, 7, 3, 64), (1, 33, 4, 128)):
        yield get_inputs(batch, length, heads, head_size)

"""Attention without a mask as in ViT-L/16: 64 images of 197 tokens (no multiple of a tile), 16 heads of 64."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("attention", "odd", "fp16", "vit")


def reference_fn(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def get_inputs(batch=64, heads=16, length=197, width=64):
    shape = (batch, heads, length, width)
    return [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3)]


def get_input_sets():
    for sizes in ((1, 1, 197, 64), (2, 3, 17, 32), (1, 2, 1, 64), (1, 1, 256, 128)):
        yield get_inputs(*sizes)

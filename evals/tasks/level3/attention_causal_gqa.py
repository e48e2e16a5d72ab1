"""Causal attention of Llama-3-8B over 4096 tokens: 32 query heads share 8 key heads of 128."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("attention", "causal", "gqa", "bf16", "llama")


def reference_fn(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def ALGORITHMIC_FLOPS(query, key, value):
    batch, heads, length, width = query.shape
    return 4 * batch * heads * width * length * (length + 1) // 2


def get_inputs(batch=1, heads=32, key_heads=8, length=4096, width=128):
    query = torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16)
    key, value = torch.randn(2, batch, key_heads, length, width, device="cuda", dtype=torch.bfloat16)
    return [query, key, value]


def get_input_sets():
    for sizes in ((1, 4, 1, 128, 64), (2, 6, 3, 33, 32), (1, 2, 2, 1, 128), (1, 8, 2, 200, 128)):
        yield get_inputs(*sizes)

"""The attention block of GPT-2 medium: projections to q, k and v, 16 causal heads of 64, the output projection."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("attention", "causal", "matmul", "bf16", "gpt2")


def reference_fn(x, query_weight, key_weight, value_weight, out_weight):
    """x [batch, length, hidden]; weights [heads, width, hidden], the last one [hidden, heads, width]."""
    query, key, value = (torch.einsum("blc,hwc->bhlw", x, w) for w in (query_weight, key_weight, value_weight))
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return torch.einsum("bhlw,chw->blc", mixed, out_weight)


def get_inputs(batch=24, length=768, hidden=1024, heads=16, width=64):
    x = torch.randn(batch, length, hidden, device="cuda", dtype=torch.bfloat16)
    inward = [(torch.randn(heads, width, hidden, device="cuda") * hidden**-0.5).bfloat16() for _ in range(3)]
    out = torch.randn(hidden, heads, width, device="cuda") * (heads * width) ** -0.5
    return [x, *inward, out.bfloat16()]


def get_input_sets():
    for sizes in ((1, 128, 64, 2, 32), (2, 33, 48, 3, 16), (1, 1, 64, 1, 64)):
        yield get_inputs(*sizes)

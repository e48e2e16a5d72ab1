"""Attention-like softmax: scaled bf16 scores plus a broadcast position bias."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "softmax", "broadcast")


def reference_fn(scores, bias):
    return torch.softmax(scores * 0.125 + bias, dim=-1)


def get_inputs(heads=32, queries=1024, keys=2048):
    return [
        torch.randn(heads, queries, keys, device="cuda", dtype=torch.bfloat16),
        torch.randn(queries, keys, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    for heads, queries, keys in ((1, 1, 1), (3, 5, 7), (2, 33, 128)):
        yield get_inputs(heads, queries, keys)

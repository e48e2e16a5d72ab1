"""Softmax over the last dimension of fp16 attention scores of rank 4."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "fp16", "softmax")


def reference_fn(x):
    return torch.softmax(x, dim=-1)


def get_inputs(batch=4, heads=16, queries=1024, keys=1024):
    return [torch.randn(batch, heads, queries, keys, device="cuda", dtype=torch.float16)]


def get_input_sets():
    for batch, heads, queries, keys in ((1, 1, 1, 1), (2, 3, 5, 7), (1, 2, 33, 128), (1, 2, 1, 1000)):
        yield get_inputs(batch, heads, queries, keys)

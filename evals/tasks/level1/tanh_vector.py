"""Tanh of a fp32 vector of 2**24 + 3 elements: one dimension and a tail."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp32", "odd")


def reference_fn(x):
    return torch.tanh(x)


def get_inputs(size=2**24 + 3):
    return [torch.randn(size, device="cuda")]


def get_input_sets():
    for size in (1, 5, 255, 256, 4099, 0):
        yield get_inputs(size)

"""Sigmoid of a fp16 matrix whose sizes are odd primes, so that no row starts at a vector boundary."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp16", "odd")


def reference_fn(x):
    return torch.sigmoid(x)


def get_inputs(rows=16381, columns=4093):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float16)]


def get_input_sets():
    for rows, columns in ((1, 1), (3, 7), (1, 8191), (17, 257), (0, 13)):
        yield get_inputs(rows, columns)

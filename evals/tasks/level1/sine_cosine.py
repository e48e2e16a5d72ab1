"""Sine and cosine of a fp32 matrix: two outputs of one input."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp32", "outputs")


def reference_fn(x):
    return torch.sin(x), torch.cos(x)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float32)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

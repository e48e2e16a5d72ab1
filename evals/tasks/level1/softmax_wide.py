"""Softmax over rows of 262144 columns: one row exceeds the registers of a block."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "bf16", "softmax", "wide")


def reference_fn(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=256, columns=262144):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 262144), (2, 65536), (3, 40001)):
        yield get_inputs(rows, columns)

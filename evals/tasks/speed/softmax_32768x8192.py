"""Softmax over 8192 columns of 32768 bf16 rows."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "bf16", "speed")


def reference_fn(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=32768, columns=8192):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 1024), (33, 1000), (7, 130)):
        yield get_inputs(rows, columns)

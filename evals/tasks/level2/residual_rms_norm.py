"""Residual add, then RMS norm: the sum and its norm are both returned."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "bf16", "norm", "outputs")


def reference_fn(x, residual, weight):
    total = x + residual
    return F.rms_norm(total, total.shape[-1:], weight, eps=1e-6), total


def get_inputs(rows=16384, columns=5120):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(columns, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

"""Residual add, then layer norm of fp16 matrices."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "fp16", "norm")


def reference_fn(x, residual, weight, bias):
    return F.layer_norm(x + residual, x.shape[-1:], weight, bias)


def get_inputs(rows=16384, columns=2048):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.float16),
        torch.randn(rows, columns, device="cuda", dtype=torch.float16),
        torch.randn(columns, device="cuda", dtype=torch.float16),
        torch.randn(columns, device="cuda", dtype=torch.float16),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2)):
        yield get_inputs(rows, columns)

"""Residual plus a masked and rescaled branch, as dropout applies a saved uint8 mask."""

import torch

LEVEL = 2
TAGS = ("elementwise", "bf16", "mixed")


def reference_fn(x, residual, keep):
    return residual + x * keep.to(x.dtype) * 1.25


def get_inputs(rows=16384, columns=4096):
    keep = torch.randint(0, 2, (rows, columns), device="cuda", dtype=torch.uint8)
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        keep,
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

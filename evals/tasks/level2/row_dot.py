"""Dot product of matching rows of two bf16 matrices, summed in fp32."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16")


def reference_fn(a, b):
    return (a.float() * b.float()).sum(dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

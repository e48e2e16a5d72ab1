"""A fp32 matrix with the masked elements set to -10000."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp32", "bool")


def reference_fn(x, mask):
    return x.masked_fill(mask, -10000.0)


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.float32),
        torch.rand(rows, columns, device="cuda") < 0.25,
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

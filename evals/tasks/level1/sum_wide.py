"""Sum of rows of 262144 fp32 columns."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "fp32", "wide")


def reference_fn(x):
    return torch.sum(x, dim=-1)


def get_inputs(rows=128, columns=262144):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float32)]


def get_input_sets():
    for rows, columns in ((2, 262144), (1, 100003), (3, 32768)):
        yield get_inputs(rows, columns)

"""Whether any element of a row exceeds 3: a bool output."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "fp32", "bool")


def reference_fn(x):
    return (x > 3.0).any(dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float32)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

"""Mean of each row of a bf16 matrix, kept as a column."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "bf16")


def reference_fn(x):
    return torch.mean(x, dim=-1, keepdim=True)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

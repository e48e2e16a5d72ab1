"""Product of each row of a fp32 matrix with entries near one."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "fp32")


def reference_fn(x):
    return torch.prod(x, dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [1.0 + 0.01 * torch.randn(rows, columns, device="cuda")]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

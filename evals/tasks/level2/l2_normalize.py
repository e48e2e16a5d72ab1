"""Rows of a fp16 matrix scaled to unit L2 norm."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "fp16", "norm")


def reference_fn(x):
    return F.normalize(x, dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

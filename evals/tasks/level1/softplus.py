"""Softplus of a fp32 matrix, whose large arguments take the linear branch."""

import torch
import torch.nn.functional as F

LEVEL = 1
TAGS = ("elementwise", "fp32")


def reference_fn(x):
    return F.softplus(x * 8.0)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float32)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

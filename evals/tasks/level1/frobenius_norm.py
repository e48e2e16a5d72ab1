"""Frobenius norm of an fp32 matrix: one number for the whole tensor."""

import torch

LEVEL = 1
TAGS = ("total", "fp32", "norm")


def reference_fn(x):
    return torch.linalg.norm(x)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda")]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

"""A column vector times a row vector, broadcast to a fp32 matrix: almost only writes."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp32", "broadcast")


def reference_fn(column, row):
    return column * row


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, 1, device="cuda"), torch.randn(1, columns, device="cuda")]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

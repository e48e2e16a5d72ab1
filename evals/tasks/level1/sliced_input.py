"""ReLU of the left half of a wider bf16 matrix: rows are far apart."""

import torch

LEVEL = 1
TAGS = ("elementwise", "bf16", "strided")


def reference_fn(x):
    return torch.relu(x)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, 2 * columns, device="cuda", dtype=torch.bfloat16)[:, :columns]]


def get_input_sets():
    for rows, columns in ((33, 1000), (7, 129), (1, 64), (5, 1)):
        yield get_inputs(rows, columns)

"""A contiguous fp32 matrix plus a transposed (column-major) one."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp32", "strided")


def reference_fn(a, b):
    return a + 2.0 * b


def get_inputs(rows=8192, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.float32),
        torch.randn(columns, rows, device="cuda").t(),
    ]


def get_input_sets():
    for rows, columns in ((33, 1000), (7, 129), (1, 64), (64, 1)):
        yield get_inputs(rows, columns)

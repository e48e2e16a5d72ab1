"""Shift, mask and exclusive-or of int32 matrices."""

import torch

LEVEL = 1
TAGS = ("elementwise", "int32")


def reference_fn(a, b):
    return ((a >> 3) & 1023) ^ b


def get_inputs(rows=16384, columns=4096):
    a = torch.randint(-(2**31), 2**31 - 1, (rows, columns), device="cuda", dtype=torch.int32)
    b = torch.randint(0, 1024, (rows, columns), device="cuda", dtype=torch.int32)
    return [a, b]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

"""Integer multiply, add and maximum of int64 matrices."""

import torch

LEVEL = 1
TAGS = ("elementwise", "int64")


def reference_fn(a, b):
    return torch.maximum(a * 3 + 1, b)


def get_inputs(rows=16384, columns=4096):
    a = torch.randint(-1000, 1000, (rows, columns), device="cuda")
    b = torch.randint(-1000, 1000, (rows, columns), device="cuda")
    return [a, b]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

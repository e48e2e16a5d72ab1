"""Elements of one fp16 matrix or another, chosen by a bool mask."""

import torch

LEVEL = 1
TAGS = ("elementwise", "mixed", "bool")


def reference_fn(mask, a, b):
    return torch.where(mask, a, b)


def get_inputs(rows=16384, columns=4096):
    mask = torch.rand(rows, columns, device="cuda") < 0.5
    return [
        mask,
        torch.randn(rows, columns, device="cuda", dtype=torch.float16),
        torch.randn(rows, columns, device="cuda", dtype=torch.float16),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

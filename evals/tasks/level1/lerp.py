"""Linear interpolation between two bf16 matrices with an elementwise weight."""

import torch

LEVEL = 1
TAGS = ("elementwise", "bf16")


def reference_fn(a, b, weight):
    return torch.lerp(a, b, weight)


def get_inputs(rows=16384, columns=4096):
    weight = torch.rand(rows, columns, device="cuda", dtype=torch.bfloat16)
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        weight,
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

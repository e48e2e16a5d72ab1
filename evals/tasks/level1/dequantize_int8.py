"""Dequantisation of an int8 matrix with a scale a row."""

import torch

LEVEL = 1
TAGS = ("elementwise", "int8", "mixed", "broadcast")


def reference_fn(q, scale):
    return (q.float() * scale).to(torch.bfloat16)


def get_inputs(rows=16384, columns=4096):
    q = torch.randint(-127, 128, (rows, columns), device="cuda", dtype=torch.int8)
    scale = torch.rand(rows, 1, device="cuda") + 0.01
    return [q, scale]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

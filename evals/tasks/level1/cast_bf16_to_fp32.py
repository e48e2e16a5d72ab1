"""A bf16 matrix doubled in fp32: a cast with work."""

import torch

LEVEL = 1
TAGS = ("elementwise", "mixed")
DTYPES = ("bf16", "fp32")


def reference_fn(x):
    return x.float() * 2.0


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

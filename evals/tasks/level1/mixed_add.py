"""A fp16 matrix plus a fp32 matrix: PyTorch promotes the result to fp32."""

import torch

LEVEL = 1
TAGS = ("elementwise", "mixed")
DTYPES = ("fp16", "fp32")


def reference_fn(a, b):
    return a + b


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.float16),
        torch.randn(rows, columns, device="cuda", dtype=torch.float32),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

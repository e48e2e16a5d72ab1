"""alpha * x + beta with alpha and beta passed as Python floats."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp16", "scalar")


def reference_fn(x, alpha, beta):
    return alpha * x + beta


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float16), 1.75, -0.375]


def get_input_sets():
    for rows, columns, alpha, beta in ((33, 1000, 0.5, 2.0), (1, 7, -3.0, 0.25), (5, 129, 1.0, 0.0)):
        x, _, _ = get_inputs(rows, columns)
        yield [x, alpha, beta]

"""Gradient of the tanh GELU, written out, on bf16 matrices."""

import torch

LEVEL = 2
TAGS = ("elementwise", "bf16", "backward")


def reference_fn(gradient, x):
    value = x.float()
    inner = 0.7978845608 * (value + 0.044715 * value * value * value)
    tanh = torch.tanh(inner)
    slope = 0.7978845608 * (1.0 + 0.134145 * value * value)
    derivative = 0.5 * (1.0 + tanh) + 0.5 * value * (1.0 - tanh * tanh) * slope
    return (gradient.float() * derivative).to(x.dtype)


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

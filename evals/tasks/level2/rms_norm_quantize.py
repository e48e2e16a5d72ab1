"""RMS norm of a bf16 matrix, quantised to int8 with a static scale."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "int8", "norm")


def reference_fn(x, weight):
    value = x.float()
    normed = value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    return torch.clamp(torch.round(normed * 32.0), -128, 127).to(torch.int8)


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(columns, device="cuda", dtype=torch.float32),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

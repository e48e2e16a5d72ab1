"""RMS norm as Gemma writes it: everything in fp32, scaled by 1 + weight."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "norm", "mixed")


def reference_fn(x, weight):
    value = x.float()
    value = value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (value * (1.0 + weight.float())).to(x.dtype)


def get_inputs(rows=16384, columns=3072):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(columns, device="cuda", dtype=torch.bfloat16) * 0.1,
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

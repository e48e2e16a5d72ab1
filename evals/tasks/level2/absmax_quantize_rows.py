"""Rows of a bf16 matrix quantised to int8 by their own largest magnitude; scales are returned too."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "int8", "outputs")


def reference_fn(x):
    value = x.float()
    scale = value.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127.0
    return torch.clamp(torch.round(value / scale), -127, 127).to(torch.int8), scale


def get_inputs(rows=16384, columns=8192):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

"""SwiGLU on the two halves of one bf16 input."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("elementwise", "bf16", "strided")


def reference_fn(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, 2 * columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

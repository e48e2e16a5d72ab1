"""SwiGLU of two fp16 inputs followed by RMS norm of the rows."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "fp16", "norm")


def reference_fn(gate, up, weight):
    hidden = F.silu(gate) * up
    return F.rms_norm(hidden, hidden.shape[-1:], weight, eps=1e-5)


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.float16),
        torch.randn(rows, columns, device="cuda", dtype=torch.float16),
        torch.randn(columns, device="cuda", dtype=torch.float16),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

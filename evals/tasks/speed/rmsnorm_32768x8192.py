"""RMS norm over 8192 columns of 32768 bf16 rows, with weight."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "bf16", "speed")


def reference_fn(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight, eps=1e-6)


def get_inputs(rows=32768, columns=8192):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16),
        torch.randn(columns, device="cuda", dtype=torch.bfloat16),
    ]


def get_input_sets():
    for rows, columns in ((1, 1024), (33, 1000), (7, 130)):
        yield get_inputs(rows, columns)

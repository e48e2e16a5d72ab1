"""ELU with alpha 1.5 of a fp32 tensor of rank 4."""

import torch
import torch.nn.functional as F

LEVEL = 1
TAGS = ("elementwise", "fp32")


def reference_fn(x):
    return F.elu(x, alpha=1.5)


def get_inputs(batch=32, channels=64, height=128, width=128):
    return [torch.randn(batch, channels, height, width, device="cuda")]


def get_input_sets():
    for batch, channels, height, width in ((1, 1, 1, 1), (2, 3, 5, 7), (1, 4, 16, 16), (0, 3, 8, 8)):
        yield get_inputs(batch, channels, height, width)

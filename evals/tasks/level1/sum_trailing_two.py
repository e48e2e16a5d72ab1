"""Sum over height and width of a bf16 image batch."""

import torch

LEVEL = 1
TAGS = ("row-reduction", "bf16", "trailing")


def reference_fn(x):
    return torch.sum(x, dim=(-2, -1))


def get_inputs(batch=32, channels=128, height=128, width=128):
    return [torch.randn(batch, channels, height, width, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for batch, channels, height, width in ((1, 1, 1, 1), (2, 3, 5, 7), (1, 8, 16, 16), (0, 3, 8, 8)):
        yield get_inputs(batch, channels, height, width)

"""Group norm of a fp32 image batch with groups already split out: over channels, height and width of a group."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "fp32", "norm", "trailing")


def reference_fn(x):
    return F.layer_norm(x, x.shape[-3:])


def get_inputs(batch=16, groups=32, channels=4, height=64, width=64):
    return [torch.randn(batch, groups, channels, height, width, device="cuda")]


def get_input_sets():
    for batch, groups, channels, height, width in ((1, 1, 1, 2, 2), (2, 3, 4, 5, 7), (1, 4, 2, 16, 16)):
        yield get_inputs(batch, groups, channels, height, width)

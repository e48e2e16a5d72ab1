"""A fp16 image batch scaled and shifted a channel: broadcast over the middle dimension."""

import torch

LEVEL = 1
TAGS = ("elementwise", "fp16", "broadcast")


def reference_fn(x, scale, shift):
    return x * scale[:, None, None] + shift[:, None, None]


def get_inputs(batch=32, channels=64, height=128, width=128):
    half = {"device": "cuda", "dtype": torch.float16}
    return [
        torch.randn(batch, channels, height, width, **half),
        torch.randn(channels, **half),
        torch.randn(channels, **half),
    ]


def get_input_sets():
    for batch, channels, height, width in ((1, 1, 1, 1), (2, 3, 5, 7), (1, 8, 16, 16), (2, 5, 1, 9)):
        yield get_inputs(batch, channels, height, width)

"""Depthwise causal convolution over time (4 taps) with bias and SiLU, as in Mamba-2.8B: 5120 channels."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("conv", "depthwise", "bf16", "mamba")


def reference_fn(x, weight, bias):
    """x [batch, channels, time], weight [channels, 1, taps], bias [channels]."""
    taps = weight.shape[-1]
    padded = F.pad(x, (taps - 1, 0))
    return F.silu(F.conv1d(padded, weight, bias, groups=x.shape[1]))


def get_inputs(batch=4, channels=5120, time=2048, taps=4):
    x = torch.randn(batch, channels, time, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(channels, 1, taps, device="cuda", dtype=torch.bfloat16)
    return [x, weight, torch.randn(channels, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for sizes in ((1, 8, 64, 4), (2, 5, 33, 3), (1, 3, 1, 4), (3, 16, 7, 2)):
        yield get_inputs(*sizes)

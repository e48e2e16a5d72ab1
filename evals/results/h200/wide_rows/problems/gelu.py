"""GELU in float32, 1 GiB."""

import torch
import torch.nn.functional as F


def reference_fn(x):
    return F.gelu(x)


def get_inputs():
    return [torch.randn(1 << 28, device="cuda")]

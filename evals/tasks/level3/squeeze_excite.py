"""Squeeze and excitation of EfficientNet-B4's last stages: means of 1632 channels, two small layers, a gate on each."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("trailing", "matmul", "broadcast", "fp16", "efficientnet")


def reference_fn(x, down, down_bias, up, up_bias):
    """x [batch, channels, height, width], down [narrow, channels], up [channels, narrow]."""
    means = x.float().mean(dim=(2, 3))
    narrow = F.silu(F.linear(means, down.float(), down_bias.float()))
    gate = torch.sigmoid(F.linear(narrow, up.float(), up_bias.float()))
    return (x.float() * gate[:, :, None, None]).to(x.dtype)


def get_inputs(batch=256, channels=1632, narrow=68, side=12):
    def draw(*shape, scale=1.0):
        return (scale * torch.randn(shape, device="cuda")).half()

    x = draw(batch, channels, 1, 1) + draw(batch, channels, side, side)
    return [x, draw(narrow, channels), draw(narrow), draw(channels, narrow, scale=narrow**-0.5), draw(channels)]


def get_input_sets():
    for sizes in ((1, 32, 8, 14), (3, 17, 4, 7), (2, 5, 1, 1)):
        yield get_inputs(*sizes)

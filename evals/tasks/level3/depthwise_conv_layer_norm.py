"""The start of a ConvNeXt-T block: depthwise 7 x 7 convolution, then layer norm over 384 channels, channels last."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("conv", "depthwise", "row-reduction", "fp16", "convnext")


def reference_fn(x, weight, bias, gain, shift):
    """x [batch, channels, height, width], weight [channels, 1, 7, 7]; returns [batch, height, width, channels]."""
    convolved = F.conv2d(x.float(), weight.float(), bias.float(), padding=3, groups=x.shape[1])
    last = convolved.permute(0, 2, 3, 1)
    return F.layer_norm(last, last.shape[-1:], gain.float(), shift.float(), eps=1e-6).to(x.dtype).contiguous()


def get_inputs(batch=512, channels=384, side=14):
    def draw(*shape, scale=1.0):
        return (scale * torch.randn(shape, device="cuda")).half()

    weight = draw(channels, 1, 7, 7, scale=1 / 7)
    return [draw(batch, channels, side, side), weight, draw(channels), draw(channels), draw(channels)]


def get_input_sets():
    for sizes in ((1, 16, 8), (2, 5, 9), (1, 33, 1)):
        yield get_inputs(*sizes)

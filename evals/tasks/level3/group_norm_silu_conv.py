"""Half of a residual block of Stable Diffusion's U-Net: group norm, SiLU and a 3 x 3 convolution with bias.

32 groups of 10 channels at 64 x 64.
"""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("conv", "norm", "fp16", "diffusion")


def reference_fn(x, gain, shift, weight, bias):
    """x [batch, groups, channels of a group, height, width], gain and shift [groups, channels of a group],
    weight [outputs, groups, channels of a group, 3, 3], bias [outputs].
    """
    normed = F.group_norm(
        x.float().flatten(1, 2), x.shape[1], gain.float().flatten(), shift.float().flatten(), eps=1e-5
    )
    return F.conv2d(F.silu(normed), weight.float().flatten(1, 2), bias.float(), padding=1).to(x.dtype)


def get_inputs(batch=16, groups=32, members=10, outputs=320, side=64):
    def draw(*shape, scale=1.0):
        return (scale * torch.randn(shape, device="cuda")).half()

    weight = draw(outputs, groups, members, 3, 3, scale=(9 * groups * members) ** -0.5)
    x = draw(batch, groups, members, side, side)
    return [x, draw(groups, members), draw(groups, members), weight, draw(outputs)]


def get_input_sets():
    for sizes in ((1, 8, 4, 16, 8), (2, 3, 2, 5, 7), (1, 1, 4, 8, 3)):
        yield get_inputs(*sizes)

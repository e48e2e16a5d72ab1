"""Deformable attention of one feature map as in Deformable DETR: each query reads 4 points by bilinear interpolation.

8 heads of 32, 64 x 64 places, as many queries; points outside the map count as zero.
"""

import torch
import torch.nn.functional as F

LEVEL = 4
TAGS = ("gather", "interpolation", "attention", "fp32", "detr")


def reference_fn(value, points, weights):
    """value [batch * heads, width, height, length], points [batch * heads, queries, points, 2] between 0 and 1 (x, y),
    weights [batch * heads, queries, points]; returns [batch * heads, width, queries].
    """
    sampled = F.grid_sample(value, 2.0 * points - 1.0, mode="bilinear", padding_mode="zeros", align_corners=False)
    return (sampled * weights.unsqueeze(1)).sum(dim=-1)


def get_inputs(maps=128, width=32, side=64, queries=4096, points=4):
    value = torch.randn(maps, width, side, side, device="cuda")
    places = 1.1 * torch.rand(maps, queries, points, 2, device="cuda") - 0.05
    return [value, places, torch.softmax(torch.randn(maps, queries, points, device="cuda"), dim=-1)]


def get_input_sets():
    for sizes in ((1, 32, 16, 64, 4), (3, 5, 7, 9, 2), (2, 1, 1, 3, 1)):
        yield get_inputs(*sizes)

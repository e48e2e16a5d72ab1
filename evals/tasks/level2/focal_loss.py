"""Sigmoid focal loss of fp32 logits, not reduced."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("elementwise", "fp32", "loss")


def reference_fn(logits, target):
    probability = torch.sigmoid(logits)
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    hit = probability * target + (1.0 - probability) * (1.0 - target)
    return loss * (1.0 - hit) * (1.0 - hit)


def get_inputs(rows=16384, columns=4096):
    target = (torch.rand(rows, columns, device="cuda") < 0.3).float()
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float32), target]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1), (0, 64)):
        yield get_inputs(rows, columns)

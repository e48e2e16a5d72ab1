"""Gradient of softmax from its output and the incoming gradient, bf16."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "softmax", "backward")


def reference_fn(gradient, probability):
    product = gradient.float() * probability.float()
    return (product - probability.float() * product.sum(dim=-1, keepdim=True)).to(gradient.dtype)


def get_inputs(rows=16384, columns=2048):
    probability = torch.softmax(torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), dim=-1)
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), probability]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2)):
        yield get_inputs(rows, columns)

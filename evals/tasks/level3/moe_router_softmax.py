"""Routing of a mixture of experts (Qwen3-30B-A3B: 128 experts, the best 8): softmax over the chosen, zero elsewhere.

An expert is chosen whose logit reaches the eighth largest one, so that the order of equal logits does not matter.
"""

import torch

LEVEL = 3
TAGS = ("moe", "top-k", "fp32", "qwen")


def reference_fn(logits, chosen):
    least = torch.topk(logits, chosen, dim=-1).values[:, -1:]
    return torch.softmax(logits.masked_fill(logits < least, float("-inf")), dim=-1)


def get_inputs(tokens=131072, experts=128, chosen=8):
    return [torch.randn(tokens, experts, device="cuda"), chosen]


def get_input_sets():
    for sizes in ((1, 128, 8), (33, 8, 2), (7, 60, 4), (5, 3, 3), (3, 256, 1)):
        yield get_inputs(*sizes)

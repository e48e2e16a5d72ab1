"""Entropy of the softmax of each row of bf16 logits."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "softmax")


def reference_fn(logits):
    log_probability = torch.log_softmax(logits.float(), dim=-1)
    return -(torch.exp(log_probability) * log_probability).sum(dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2)):
        yield get_inputs(rows, columns)

"""Softmax of bf16 logits divided by a temperature passed as a Python float."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "bf16", "softmax", "scalar")


def reference_fn(logits, temperature):
    return torch.softmax(logits / temperature, dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), 0.7]


def get_input_sets():
    for rows, columns, temperature in ((1, 4096, 2.0), (33, 1000, 0.5), (7, 129, 1.0)):
        logits, _ = get_inputs(rows, columns)
        yield [logits, temperature]

"""Softmax of fp16 scores where a bool mask keeps at least the first column."""

import torch

LEVEL = 2
TAGS = ("row-reduction", "fp16", "softmax", "bool")


def reference_fn(scores, mask):
    return torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)


def get_inputs(rows=16384, columns=4096):
    mask = torch.rand(rows, columns, device="cuda") < 0.5
    mask[:, 0] = False
    return [torch.randn(rows, columns, device="cuda", dtype=torch.float16), mask]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

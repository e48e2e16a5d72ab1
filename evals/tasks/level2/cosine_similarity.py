"""Cosine similarity of matching rows of two fp32 matrices."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "fp32", "loss")


def reference_fn(a, b):
    return F.cosine_similarity(a, b, dim=-1)


def get_inputs(rows=16384, columns=4096):
    return [
        torch.randn(rows, columns, device="cuda", dtype=torch.float32),
        torch.randn(rows, columns, device="cuda", dtype=torch.float32),
    ]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

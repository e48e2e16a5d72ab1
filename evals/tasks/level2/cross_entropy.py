"""Cross entropy of each row of bf16 logits against a class index."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "bf16", "loss", "softmax")


def reference_fn(logits, target):
    return F.cross_entropy(logits.float(), target, reduction="none")


def get_inputs(rows=8192, columns=8192):
    target = torch.randint(0, columns, (rows,), device="cuda")
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), target]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 2)):
        yield get_inputs(rows, columns)

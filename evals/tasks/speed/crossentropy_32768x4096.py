"""Cross entropy over 4096 classes of 32768 rows of bf16 logits."""

import torch
import torch.nn.functional as F

LEVEL = 1
TAGS = ("row-reduction", "bf16", "speed")


def reference_fn(logits, target):
    return F.cross_entropy(logits, target, reduction="none")


def get_inputs(rows=32768, columns=4096):
    target = torch.randint(0, columns, (rows,), device="cuda")
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), target]


def get_input_sets():
    for rows, columns in ((1, 1024), (33, 1000), (7, 130)):
        yield get_inputs(rows, columns)

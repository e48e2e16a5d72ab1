"""Cross entropy over a vocabulary of 128256 entries, as language models end."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "bf16", "loss", "softmax", "wide")


def reference_fn(logits, target):
    return F.cross_entropy(logits.float(), target, reduction="none")


def get_inputs(rows=1024, columns=128256):
    target = torch.randint(0, columns, (rows,), device="cuda")
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), target]


def get_input_sets():
    for rows, columns in ((1, 128256), (3, 50257), (5, 1000)):
        yield get_inputs(rows, columns)

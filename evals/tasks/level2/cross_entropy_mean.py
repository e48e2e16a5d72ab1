"""Mean cross entropy of bf16 logits with label smoothing 0.1; rows whose target is -100 do not count."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("row-reduction", "total", "bf16", "loss", "softmax")


def reference_fn(logits, target):
    return F.cross_entropy(logits.float(), target, label_smoothing=0.1)


def get_inputs(rows=16384, columns=8192):
    target = torch.randint(0, columns, (rows,), device="cuda")
    target[:: max(2, rows // 5)] = -100
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16), target]


def get_input_sets():
    for rows, columns in ((2, 4096), (33, 1000), (7, 129), (5, 2)):
        yield get_inputs(rows, columns)

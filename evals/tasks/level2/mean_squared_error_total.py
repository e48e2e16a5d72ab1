"""Mean squared error over all elements of two bf16 tensors, in fp32."""

import torch
import torch.nn.functional as F

LEVEL = 2
TAGS = ("total", "bf16", "loss")


def reference_fn(prediction, target):
    return F.mse_loss(prediction.float(), target.float())


def get_inputs(rows=16384, columns=8192):
    return [torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) for _ in range(2)]


def get_input_sets():
    for rows, columns in ((1, 4096), (33, 1000), (7, 129), (5, 1)):
        yield get_inputs(rows, columns)

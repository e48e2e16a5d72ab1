"""PyTorch's own fused operations, where a task's reference writes them out. For torch 2.11 and 2.13."""

import torch.nn.functional as F

NEEDS = "torch"
TASKS = {"level2/rms_norm": "rms_norm"}


def rms_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-6)

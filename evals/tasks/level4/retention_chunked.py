"""Causal linear attention with a fixed decay for each head, as RetNet has it: 8 heads of 256, 2048 tokens.

The reference weighs all pairs; a kernel may carry a 256 x 256 state from chunk to chunk, as the operations count.
"""

import torch

LEVEL = 4
TAGS = ("attention", "causal", "linear", "scan", "bf16", "retnet")


def reference_fn(query, key, value, decay):
    """query, key, value [batch, heads, length, width] bf16, decay [heads] fp32 between 0 and 1."""
    places = torch.arange(query.shape[2], device=query.device)
    distance = (places[:, None] - places[None, :]).to(decay.dtype)
    weights = torch.exp(distance.clamp(min=0) * torch.log(decay)[:, None, None]).masked_fill(distance < 0, 0.0)
    scores = query.float() @ key.float().transpose(-1, -2) * query.shape[-1] ** -0.5
    return ((scores * weights) @ value.float()).to(query.dtype)


def ALGORITHMIC_FLOPS(query, key, value, decay):
    """A state that is updated and read once for each token."""
    return 4 * query.numel() * value.shape[-1]


def get_inputs(batch=8, heads=8, length=2048, width=256):
    tensors = [torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    return [*tensors, 1.0 - torch.exp2(-5.0 - 3.0 * torch.rand(heads, device="cuda"))]


def get_input_sets():
    for sizes in ((1, 2, 128, 64), (2, 3, 33, 32), (1, 1, 1, 16)):
        yield get_inputs(*sizes)

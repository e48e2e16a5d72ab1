"""The state space layer of Mamba-2-1.3B as masked attention: decays from step sizes, 64 heads of 64, 128 states.

All heads share the rows into and out of the state. The reference weighs all pairs; a kernel may go by chunks.
"""

import torch
import torch.nn.functional as F

LEVEL = 4
TAGS = ("ssm", "causal", "linear", "scan", "bf16", "mamba")


def reference_fn(x, step, decay, into, out_of):
    """x [batch, time, heads, width] bf16, step [batch, time, heads] fp32, decay [heads] fp32 below zero, into and
    out_of [batch, time, states] bf16.
    """
    step = F.softplus(step)
    sums = (step * decay).cumsum(dim=1).transpose(1, 2)  # [batch, heads, time]
    later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    log_weights = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(later, float("-inf"))
    pairs = (out_of.float() @ into.float().transpose(1, 2)).unsqueeze(1) * torch.exp(log_weights)
    entering = (x.float() * step.unsqueeze(-1)).transpose(1, 2)
    return (pairs @ entering).transpose(1, 2).to(x.dtype).contiguous()


def ALGORITHMIC_FLOPS(x, step, decay, into, out_of):
    """A state of states x width for each head, updated and read once for each step."""
    return 4 * x.numel() * into.shape[-1]


def get_inputs(batch=4, time=1024, heads=64, width=64, states=128):
    def draw(*shape):
        return torch.randn(shape, device="cuda")

    decay = -0.5 - draw(heads).abs()
    tensors = [draw(batch, time, heads, width).bfloat16(), draw(batch, time, heads) - 4.0, decay]
    return [*tensors, *((draw(batch, time, states) * states**-0.5).bfloat16() for _ in range(2))]


def get_input_sets():
    for sizes in ((1, 64, 4, 32, 16), (2, 33, 3, 8, 5), (1, 1, 2, 16, 4)):
        yield get_inputs(*sizes)

"""FlashAttention's CuTe DSL kernels on small tensors, against float64: run by foreign_scripts.py beside its package.

python flash_attention.py LENGTH HEADS KV_HEADS HEAD_DIM [causal] [backward]
"""

import math
import sys

import torch
from flash_attn.cute import flash_attn_func

FORWARD, BACKWARD = 0.03, 0.06  # of bfloat16 inputs from a normal distribution


def reference(q, k, v, causal):
    """Attention of (batch, length, heads, dim), heads of k and v repeated."""
    groups = q.shape[2] // k.shape[2]
    k, v = (tensor.repeat_interleave(groups, dim=2) for tensor in (k, v))
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        outside = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(outside, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)


def main():
    """Compare outputs, and gradients where they are asked for."""
    length, heads, kv_heads, dim = map(int, sys.argv[1:5])
    causal, backward = ("causal" in sys.argv, "backward" in sys.argv)
    torch.manual_seed(0)
    shapes = [(1, length, count, dim) for count in (heads, kv_heads, kv_heads)]
    given = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=backward) for shape in shapes]
    out = flash_attn_func(*given, causal=causal)
    out = out[0] if isinstance(out, tuple) else out
    exact = [tensor.detach().double().requires_grad_(backward) for tensor in given]
    expected = reference(*exact, causal)
    error = (out.double() - expected).abs().max().item()
    print(f"forward: max error {error:.2e}")
    assert error < FORWARD
    if backward:
        gradient = torch.randn_like(out)
        found = torch.autograd.grad(out, given, gradient)
        for name, ours, theirs in zip("qkv", found, torch.autograd.grad(expected, exact, gradient.double())):
            error = (ours.double() - theirs).abs().max().item()
            print(f"gradient of {name}: max error {error:.2e}")
            assert error < BACKWARD


main()

"""Gradients of an RMS norm with respect to its input and its weight, over rows of Llama-3-8B's 4096 columns."""

import torch

LEVEL = 3
TAGS = ("row-reduction", "column-reduction", "backward", "outputs", "bf16", "llama")


def reference_fn(x, weight, gradient):
    """x, gradient [rows, columns] bf16, weight [columns] fp32; returns those of x (bf16) and of the weight (fp32)."""
    value, upstream = x.float(), gradient.float()
    inverse = torch.rsqrt(value.square().mean(dim=-1, keepdim=True) + 1e-5)
    normed, weighted = value * inverse, upstream * weight.float()
    of_x = inverse * (weighted - normed * (weighted * normed).mean(dim=-1, keepdim=True))
    return of_x.to(x.dtype), (upstream * normed).sum(dim=0)


def get_inputs(rows=16384, columns=4096):
    x, gradient = torch.randn(2, rows, columns, device="cuda", dtype=torch.bfloat16)
    return [x, torch.randn(columns, device="cuda"), gradient]


def get_input_sets():
    for sizes in ((1, 4096), (33, 1000), (7, 129), (200, 1)):
        yield get_inputs(*sizes)

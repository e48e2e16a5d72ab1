"""The gated MLP of Llama-3-8B: down(silu(gate(x)) * up(x)), hidden size 4096, 14336 inside."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("mlp", "matmul", "bf16", "llama")


def reference_fn(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def weight(rows, columns):
    return (torch.randn(rows, columns, device="cuda") * columns**-0.5).to(torch.bfloat16)


def get_inputs(tokens=4096, hidden=4096, inner=14336):
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    return [x, weight(inner, hidden), weight(inner, hidden), weight(hidden, inner)]


def get_input_sets():
    for tokens, hidden, inner in ((1, 256, 512), (33, 128, 384), (7, 72, 104), (2, 1, 3)):
        yield get_inputs(tokens, hidden, inner)

"""The last projection of Gemma-2-9B with its soft cap: 30 * tanh(x @ weight / 30), on 32768 of its tokens' rows."""

import torch

LEVEL = 3
TAGS = ("matmul", "epilogue", "bf16", "gemma")


def reference_fn(x, weight, cap):
    return cap * torch.tanh(x.float() @ weight.float().t() / cap)


def get_inputs(tokens=1024, hidden=3584, vocabulary=32768, cap=30.0):
    x = 8.0 * torch.randn(tokens, hidden, device="cuda")
    weight = torch.randn(vocabulary, hidden, device="cuda") * hidden**-0.5
    return [x.bfloat16(), weight.bfloat16(), cap]


def get_input_sets():
    for sizes in ((1, 256, 128), (33, 72, 200), (5, 16, 1)):
        yield get_inputs(*sizes)

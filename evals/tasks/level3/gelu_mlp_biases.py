"""The MLP of GPT-2 XL with both biases and the tanh form of GELU: hidden size 1600, no power of two."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("mlp", "matmul", "epilogue", "fp16", "gpt2")


def reference_fn(x, first, first_bias, second, second_bias):
    return F.linear(F.gelu(F.linear(x, first, first_bias), approximate="tanh"), second, second_bias)


def parameters(outputs, inputs):
    weight = torch.randn(outputs, inputs, device="cuda") * inputs**-0.5
    return weight.half(), torch.randn(outputs, device="cuda", dtype=torch.float16)


def get_inputs(tokens=8192, hidden=1600, inner=6400):
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.float16)
    return [x, *parameters(inner, hidden), *parameters(hidden, inner)]


def get_input_sets():
    for tokens, hidden, inner in ((1, 64, 256), (33, 100, 400), (5, 24, 40)):
        yield get_inputs(tokens, hidden, inner)

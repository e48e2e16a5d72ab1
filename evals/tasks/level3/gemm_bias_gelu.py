"""A matrix product with bias and exact GELU in its epilogue: the first half of BERT-large's MLP, 1024 to 4096."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("matmul", "epilogue", "bf16", "bert")


def reference_fn(x, weight, bias):
    return F.gelu(F.linear(x.float(), weight.float(), bias.float())).to(x.dtype)


def get_inputs(tokens=32768, inputs=1024, outputs=4096):
    x = torch.randn(tokens, inputs, device="cuda", dtype=torch.bfloat16)
    weight = (torch.randn(outputs, inputs, device="cuda") * inputs**-0.5).bfloat16()
    return [x, weight, torch.randn(outputs, device="cuda", dtype=torch.bfloat16)]


def get_input_sets():
    for sizes in ((1, 256, 128), (33, 72, 200), (5, 1, 8), (128, 64, 1)):
        yield get_inputs(*sizes)

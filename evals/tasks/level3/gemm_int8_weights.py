"""Decoding with int8 weights and a scale for each output channel: 32 tokens, Llama-3-8B's 4096 to 2 * 14336."""

import torch

LEVEL = 3
TAGS = ("matmul", "dequantize", "decode", "bf16", "int8", "llama")


def reference_fn(x, weight, scales):
    """x [tokens, inputs] bf16, weight [outputs, inputs] int8, scales [outputs] fp32."""
    return ((x.float() @ weight.float().t()) * scales).to(x.dtype)


def get_inputs(tokens=32, inputs=4096, outputs=28672):
    weight = torch.randint(-127, 128, (outputs, inputs), device="cuda", dtype=torch.int8)
    scales = (0.5 + torch.rand(outputs, device="cuda")) * inputs**-0.5 / 74.0
    return [torch.randn(tokens, inputs, device="cuda", dtype=torch.bfloat16), weight, scales]


def get_input_sets():
    for sizes in ((1, 256, 128), (33, 72, 200), (5, 16, 1)):
        yield get_inputs(*sizes)

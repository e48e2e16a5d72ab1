"""Decoding with 4-bit weights as AWQ and GPTQ keep them: two in a byte, a scale and a zero point for 128 inputs.

Llama-3-8B: 4096 inputs, 2 * 14336 outputs, 16 tokens. The low four bits are the even input.
"""

import torch

LEVEL = 3
TAGS = ("matmul", "dequantize", "decode", "fp16", "int4", "llama")


def reference_fn(x, packed, scales, zeros):
    """x [tokens, groups, inputs of a group], packed [outputs, groups, half of that] uint8, scales and zeros fp16
    [groups, outputs].
    """
    pairs = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(2)
    weight = (pairs.float() - zeros.float().t().unsqueeze(-1)) * scales.float().t().unsqueeze(-1)
    return (x.float().flatten(1) @ weight.flatten(1).t()).to(x.dtype)


def get_inputs(tokens=16, groups=32, members=128, outputs=28672):
    def draw(*shape):
        return torch.rand(shape, device="cuda")

    x = torch.randn(tokens, groups, members, device="cuda", dtype=torch.float16)
    packed = torch.randint(0, 256, (outputs, groups, members // 2), device="cuda", dtype=torch.uint8)
    scales = (0.5 + draw(groups, outputs)) * (groups * members) ** -0.5 / 4.6
    return [x, packed, scales.half(), torch.round(6 + 3 * draw(groups, outputs)).half()]


def get_input_sets():
    for sizes in ((1, 2, 128, 64), (17, 3, 32, 40), (5, 1, 2, 1)):
        yield get_inputs(*sizes)

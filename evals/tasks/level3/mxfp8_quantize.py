"""Blocks of 32 values quantised to e4m3 with a shared power of two as scale: the OCP format MXFP8.

The exponent is floor(log2(largest magnitude)) - 8, stored with a bias of 127; what exceeds 448 after that saturates.
A block with a number that is not finite gets 255, which is the format's NaN.
"""

import torch

LEVEL = 3
TAGS = ("row-reduction", "quantize", "outputs", "fp8", "bf16")
ARCHS = ("sm_89", "sm_90a", "sm_100a", "sm_120a")


def reference_fn(x):
    """x [rows, blocks, 32] bf16; returns e4m3 of that shape and the exponents [rows, blocks] uint8."""
    value = x.float()
    largest = value.abs().amax(dim=-1, keepdim=True)
    exponent = torch.frexp(largest).exponent - 9  # frexp gives a mantissa below one
    exponent = torch.where(largest > 0, exponent, 0).clamp(-127, 127)
    exponent = torch.where(torch.isfinite(largest), exponent, 128)
    scaled = torch.ldexp(value, -exponent).clamp(-448.0, 448.0)
    return scaled.to(torch.float8_e4m3fn), (exponent.squeeze(-1) + 127).to(torch.uint8)


def get_inputs(rows=16384, blocks=128, members=32):
    magnitude = torch.exp2(4.0 * torch.randn(rows, blocks, 1, device="cuda"))
    return [(magnitude * torch.randn(rows, blocks, members, device="cuda")).bfloat16()]


def get_input_sets():
    for sizes in ((1, 128, 32), (33, 7, 32), (5, 1, 32), (3, 4, 16)):
        yield get_inputs(*sizes)

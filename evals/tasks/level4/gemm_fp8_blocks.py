"""An e4m3 product with a scale for 1 x 128 activations and 128 x 128 weights: DeepSeek-V3's 7168 to 2 * 2048.

The scale of each block multiplies its partial sum, which a kernel therefore keeps apart for every 128 inputs.
"""

import torch

LEVEL = 4
TAGS = ("matmul", "dequantize", "fp8", "bf16", "deepseek")
ARCHS = ("sm_89", "sm_90a", "sm_100a", "sm_120a")
EMULATED_SIZES = {"tokens": 256, "blocks": 3, "output_blocks": 2}


def reference_fn(x, x_scales, weight, weight_scales):
    """x [tokens, blocks, 128], x_scales [blocks, tokens], weight [output blocks, 128, blocks, 128], weight_scales
    [blocks, output blocks]; returns [tokens, outputs] bf16.
    """
    left = (x.float() * x_scales.t().unsqueeze(-1)).flatten(1)
    right = weight.float() * weight_scales.t()[:, None, :, None]
    return (left @ right.flatten(2).flatten(0, 1).t()).bfloat16()


def get_inputs(tokens=4096, blocks=56, output_blocks=32, side=128):
    def draw(*shape):
        return (64.0 * torch.randn(shape, device="cuda")).clamp(-448, 448).to(torch.float8_e4m3fn)

    def scales(*shape):
        return (0.25 + torch.rand(shape, device="cuda")) / 64.0

    weight_scales = scales(blocks, output_blocks) * (blocks * side) ** -0.5
    return [draw(tokens, blocks, side), scales(blocks, tokens), draw(output_blocks, side, blocks, side), weight_scales]


def get_input_sets():
    for sizes in ((1, 2, 1, 128), (33, 3, 2, 128), (5, 1, 3, 16)):
        yield get_inputs(*sizes)

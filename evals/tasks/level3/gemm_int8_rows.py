"""Int8 times int8 with int32 sums, a scale for each token and each output channel (SmoothQuant), to fp16.

OPT-13B: 5120 to 5120. Sums of 5120 products of 7 bits each exceed the 24 bits of a float: keep them in int32.
"""

import torch

LEVEL = 3
TAGS = ("matmul", "dequantize", "fp16", "int8", "opt")
ALGORITHMIC_FLOPS = 0  # none in floating point; the rate of int8 products is not measured, so the bytes set the floor


def reference_fn(x, weight, token_scales, channel_scales):
    """x [tokens, inputs] int8, weight [outputs, inputs] int8, scales fp32."""
    sums = x.double() @ weight.double().t()  # exact
    return (sums * token_scales.unsqueeze(1) * channel_scales).half()


def get_inputs(tokens=4096, inputs=5120, outputs=5120):
    def draw(*shape):
        return torch.randint(-127, 128, shape, device="cuda", dtype=torch.int8)

    def scales(count):
        return (0.5 + torch.rand(count, device="cuda")) * inputs**-0.25 / 74.0

    return [draw(tokens, inputs), draw(outputs, inputs), scales(tokens), scales(outputs)]


def get_input_sets():
    for sizes in ((1, 256, 128), (33, 72, 200), (5, 16, 1)):
        yield get_inputs(*sizes)

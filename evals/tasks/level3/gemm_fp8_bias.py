"""A product of e4m3 matrices with one scale each, plus bias, to bf16: the output projection of Llama-3-70B."""

import torch

LEVEL = 3
TAGS = ("matmul", "epilogue", "fp8", "bf16", "llama")
ARCHS = ("sm_89", "sm_90a", "sm_100a", "sm_120a")


def reference_fn(x, weight, x_scale, weight_scale, bias):
    """x [tokens, inputs] e4m3, weight [outputs, inputs] e4m3, scales [1] fp32, bias [outputs] bf16."""
    product = x.float() @ weight.float().t()
    return (product * (x_scale * weight_scale) + bias.float()).to(bias.dtype)


def get_inputs(tokens=4096, inputs=8192, outputs=8192):
    def draw(rows, columns):
        return (64.0 * torch.randn(rows, columns, device="cuda")).clamp(-448, 448).to(torch.float8_e4m3fn)

    x_scale = (0.5 + torch.rand(1, device="cuda")) / 64.0
    weight_scale = (0.5 + torch.rand(1, device="cuda")) / 64.0 * inputs**-0.5
    bias = torch.randn(outputs, device="cuda", dtype=torch.bfloat16)
    return [draw(tokens, inputs), draw(outputs, inputs), x_scale, weight_scale, bias]


def get_input_sets():
    for sizes in ((1, 256, 128), (33, 80, 208), (5, 16, 16)):
        yield get_inputs(*sizes)

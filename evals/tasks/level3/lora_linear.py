"""A frozen projection and its low-rank update at once, as LoRA of rank 16 on Llama-3-8B trains it."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("matmul", "lora", "bf16", "llama")


def reference_fn(x, weight, down, up, scale):
    """x [tokens, inputs], weight [outputs, inputs], down [rank, inputs], up [outputs, rank]."""
    x = x.float()
    update = F.linear(F.linear(x, down.float()), up.float())
    return (F.linear(x, weight.float()) + scale * update).to(weight.dtype)


def get_inputs(tokens=8192, inputs=4096, outputs=4096, rank=16, scale=2.0):
    def draw(rows, columns):
        return (torch.randn(rows, columns, device="cuda") * columns**-0.5).bfloat16()

    x = torch.randn(tokens, inputs, device="cuda", dtype=torch.bfloat16)
    return [x, draw(outputs, inputs), draw(rank, inputs), draw(outputs, rank), scale]


def get_input_sets():
    for sizes in ((1, 256, 128, 8), (33, 72, 200, 4), (5, 16, 8, 1)):
        yield get_inputs(*sizes)

"""Cross-attention of SDXL with its projections: 4096 latents of 640 channels read 77 tokens of 2048; 10 heads of 64."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("attention", "cross", "matmul", "fp16", "sdxl")


def reference_fn(x, text, query_weight, key_weight, value_weight, out_weight):
    """Weights are [heads, width, channels of their input], out_weight is [channels, heads, width]."""
    query = torch.einsum("blc,hwc->bhlw", x, query_weight)
    key = torch.einsum("btc,hwc->bhtw", text, key_weight)
    value = torch.einsum("btc,hwc->bhtw", text, value_weight)
    mixed = F.scaled_dot_product_attention(query, key, value)
    return torch.einsum("bhlw,chw->blc", mixed, out_weight)


def get_inputs(batch=8, latents=4096, channels=640, tokens=77, text_channels=2048, heads=10, width=64):
    def draw(*shape, fan_in=1):
        return (torch.randn(shape, device="cuda") * fan_in**-0.5).half()

    x, text = draw(batch, latents, channels), draw(batch, tokens, text_channels)
    query = draw(heads, width, channels, fan_in=channels)
    key, value = (draw(heads, width, text_channels, fan_in=text_channels) for _ in range(2))
    return [x, text, query, key, value, draw(channels, heads, width, fan_in=heads * width)]


def get_input_sets():
    for sizes in ((1, 64, 40, 7, 96, 2, 16), (2, 33, 64, 77, 64, 1, 64), (1, 1, 32, 1, 32, 2, 8)):
        yield get_inputs(*sizes)

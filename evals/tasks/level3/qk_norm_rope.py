"""RMS norm of each query and key head, then the rotary embedding, as in Qwen3-8B: 32 and 8 heads of 128."""

import torch

LEVEL = 3
TAGS = ("rope", "row-reduction", "bf16", "qwen")


def normed_and_rotated(x, weight, cosine, sine):
    value = x.float()
    value = value * torch.rsqrt(value.square().mean(dim=-1, keepdim=True) + 1e-6) * weight.float()
    left, right = value.chunk(2, dim=-1)
    cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1).to(x.dtype)


def reference_fn(query, key, query_weight, key_weight, cosine, sine):
    """query, key [tokens, heads, width], weights [width], cosine and sine [tokens, width / 2] fp32."""
    rotated_query = normed_and_rotated(query, query_weight, cosine, sine)
    return rotated_query, normed_and_rotated(key, key_weight, cosine, sine)


def get_inputs(tokens=16384, heads=32, key_heads=8, width=128):
    def draw(*shape):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    angles = 6.28 * torch.rand(tokens, width // 2, device="cuda")
    tensors = [draw(tokens, heads, width), draw(tokens, key_heads, width), draw(width), draw(width)]
    return [*tensors, angles.cos(), angles.sin()]


def get_input_sets():
    for sizes in ((1, 4, 1, 128), (33, 6, 2, 64), (7, 3, 3, 2)):
        yield get_inputs(*sizes)

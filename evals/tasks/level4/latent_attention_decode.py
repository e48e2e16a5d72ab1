"""One decoding step of multi-head latent attention as in DeepSeek-V3: 128 heads read one latent of 512 and 64.

Keys are all 576 numbers of a token, values its first 512; 32 sequences of 4096 tokens.
"""

import torch

LEVEL = 4
TAGS = ("attention", "decode", "bf16", "deepseek")


def reference_fn(query, rotary_query, latent, rotary, scale):
    """query [batch, heads, latent], rotary_query [batch, heads, rotary], latent [batch, tokens, latent], rotary [batch,
    tokens, rotary].
    """
    scores = query.float() @ latent.float().transpose(1, 2) + rotary_query.float() @ rotary.float().transpose(1, 2)
    return torch.softmax(scale * scores, dim=-1).to(latent.dtype) @ latent


def get_inputs(batch=32, heads=128, tokens=4096, latent=512, rotary=64, scale=576**-0.5):
    def draw(*shape):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    queries = [draw(batch, heads, latent), draw(batch, heads, rotary)]
    return [*queries, draw(batch, tokens, latent), draw(batch, tokens, rotary), scale]


def get_input_sets():
    for sizes in ((1, 16, 128, 512, 64), (2, 5, 33, 64, 16), (3, 1, 1, 32, 8)):
        yield get_inputs(*sizes)

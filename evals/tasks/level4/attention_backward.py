"""Gradients of causal attention with respect to q, k and v, given the output and the logarithm of each row's sum.

Llama-2-7B: 32 heads of 128, 2048 tokens.
"""

import torch

LEVEL = 4
TAGS = ("attention", "causal", "backward", "outputs", "bf16", "llama")


def masked_scores(query, key):
    places = torch.arange(query.shape[2], device=query.device)
    scores = query.float() @ key.float().transpose(-1, -2) * query.shape[-1] ** -0.5
    return scores.masked_fill(places[:, None] < places[None, :], float("-inf"))


def reference_fn(query, key, value, output, logsumexp, gradient):
    """All [batch, heads, length, width] bf16 but logsumexp [batch, heads, length] fp32."""
    weights = torch.exp(masked_scores(query, key) - logsumexp.unsqueeze(-1))
    of_value = weights.transpose(-1, -2).to(gradient.dtype) @ gradient
    upstream = gradient.float()
    delta = (upstream * output.float()).sum(dim=-1, keepdim=True)
    of_scores = weights * (upstream @ value.float().transpose(-1, -2) - delta) * query.shape[-1] ** -0.5
    of_scores = of_scores.to(query.dtype)
    return of_scores @ key, of_scores.transpose(-1, -2) @ query, of_value


def ALGORITHMIC_FLOPS(query, *others):
    """Five products over the causal half."""
    batch, heads, length, width = query.shape
    return 5 * batch * heads * width * length * (length + 1)


def get_inputs(batch=1, heads=32, length=2048, width=128):
    def draw():
        return torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16)

    query, key, value = draw(), draw(), draw()
    scores = masked_scores(query, key)
    output = (torch.softmax(scores, dim=-1) @ value.float()).bfloat16()
    return [query, key, value, output, torch.logsumexp(scores, dim=-1), draw()]


def get_input_sets():
    # One token alone has gradients of exactly zero, of which float32 leaves 1e-6, PyTorch's too.
    for sizes in ((1, 2, 128, 64), (2, 3, 33, 32), (1, 1, 3, 128)):
        yield get_inputs(*sizes)

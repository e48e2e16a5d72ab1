"""The adaptive norm of DiT-XL/2: a condition gives shift, scale and gate; the gated branch is added to the stream.

Hidden size 1152, 256 tokens an image; the projections of the condition belong to it.
"""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("row-reduction", "matmul", "broadcast", "outputs", "bf16", "dit")


def reference_fn(x, branch, condition, shift_weight, scale_weight, gate_weight):
    """x, branch [batch, tokens, hidden], condition [batch, hidden], weights [hidden, hidden].

    Returns the new stream and its modulated norm, the next layer's input.
    """
    active = F.silu(condition.float())
    shift, scale, gate = (
        F.linear(active, weight.float()).unsqueeze(1) for weight in (shift_weight, scale_weight, gate_weight)
    )
    stream = x.float() + gate * branch.float()
    normed = F.layer_norm(stream, stream.shape[-1:], eps=1e-6)
    return stream.to(x.dtype), (normed * (1 + scale) + shift).to(x.dtype)


def get_inputs(batch=128, tokens=256, hidden=1152):
    def draw(*shape, scale=1.0):
        return (scale * torch.randn(shape, device="cuda")).bfloat16()

    weights = [draw(hidden, hidden, scale=hidden**-0.5) for _ in range(3)]
    return [draw(batch, tokens, hidden), draw(batch, tokens, hidden), draw(batch, hidden), *weights]


def get_input_sets():
    for sizes in ((1, 64, 128), (3, 17, 40), (2, 1, 8)):
        yield get_inputs(*sizes)

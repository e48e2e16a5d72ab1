"""One decoding step of the selective state space model of Mamba-2.8B: 5120 channels of 16 states, 256 sequences."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("ssm", "decode", "fp32", "mamba")


def reference_fn(state, x, step, decay, into, out_of, skip, gate):
    """state [batch, channels, states]; x, step, gate [batch, channels]; decay [channels, states]; into, out_of
    [batch, states]; skip [channels]. Returns the output and the new state.
    """
    step = F.softplus(step).unsqueeze(-1)
    new_state = state * torch.exp(step * decay) + step * into.unsqueeze(1) * x.unsqueeze(-1)
    y = (new_state * out_of.unsqueeze(1)).sum(dim=-1) + skip * x
    return y * F.silu(gate), new_state


def get_inputs(batch=256, channels=5120, states=16):
    def draw(*shape):
        return torch.randn(shape, device="cuda")

    decay = -torch.exp(0.5 * draw(channels, states))
    rows = [draw(batch, channels), draw(batch, channels) - 2.0]
    return [
        draw(batch, channels, states),
        *rows,
        decay,
        draw(batch, states),
        draw(batch, states),
        draw(channels),
        draw(batch, channels),
    ]


def get_input_sets():
    for sizes in ((1, 256, 16), (3, 100, 16), (7, 33, 5), (2, 1, 128)):
        yield get_inputs(*sizes)

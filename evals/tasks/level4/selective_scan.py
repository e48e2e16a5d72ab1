"""The selective scan of Mamba-1.4B: 4096 channels of 16 states over 1024 steps, gate and skip connection included."""

import torch
import torch.nn.functional as F

LEVEL = 4
TAGS = ("scan", "ssm", "fp32", "mamba")
EMULATED_SIZES = {"time": 128, "channels": 64}


def scan(factor, term):
    """h[t] = factor[t] * h[t - 1] + term[t] along dimension 1, in as many rounds as the length has bits."""
    shift, length = 1, factor.shape[1]
    while shift < length:
        earlier = term[:, :-shift] * factor[:, shift:]
        term = torch.cat((term[:, :shift], term[:, shift:] + earlier), dim=1)
        factor = torch.cat((factor[:, :shift], factor[:, shift:] * factor[:, :-shift]), dim=1)
        shift *= 2
    return term


def reference_fn(x, step, decay, into, out_of, skip, gate):
    """x, step, gate [batch, time, channels], decay [channels, states], into, out_of [batch, time, states], skip
    [channels]; all fp32.
    """
    step = F.softplus(step).unsqueeze(-1)
    state = scan(torch.exp(step * decay), step * x.unsqueeze(-1) * into.unsqueeze(2))
    y = (state * out_of.unsqueeze(2)).sum(dim=-1) + skip * x
    return y * F.silu(gate)


def get_inputs(batch=2, time=1024, channels=4096, states=16):
    def draw(*shape):
        return torch.randn(shape, device="cuda")

    decay = -torch.exp(0.5 * draw(channels, states))
    rows = [draw(batch, time, channels), draw(batch, time, channels) - 2.0]
    columns = [draw(batch, time, states), draw(batch, time, states)]
    return [*rows, decay, *columns, draw(channels), draw(batch, time, channels)]


def get_input_sets():
    for sizes in ((1, 64, 32, 16), (2, 33, 5, 4), (3, 1, 7, 1)):
        yield get_inputs(*sizes)

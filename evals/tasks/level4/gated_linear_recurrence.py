"""The real-gated linear recurrent unit of RecurrentGemma-2B: 2560 channels over 2048 steps, in bf16.

h[t] = a[t] * h[t - 1] + sqrt(1 - a[t] ** 2) * i[t] * x[t] with log a[t] = -8 * softplus(rate) * r[t].
"""

import torch
import torch.nn.functional as F

LEVEL = 4
TAGS = ("scan", "recurrent", "bf16", "gemma")


def scan(factor, term):
    """h[t] = factor[t] * h[t - 1] + term[t] along dimension 1, in as many rounds as the length has bits."""
    shift, length = 1, factor.shape[1]
    while shift < length:
        earlier = term[:, :-shift] * factor[:, shift:]
        term = torch.cat((term[:, :shift], term[:, shift:] + earlier), dim=1)
        factor = torch.cat((factor[:, :shift], factor[:, shift:] * factor[:, :-shift]), dim=1)
        shift *= 2
    return term


def reference_fn(x, recurrence_gate, input_gate, rate):
    """x and both gates before their sigmoid [batch, time, channels] bf16, rate [channels] fp32."""
    log_factor = -8.0 * F.softplus(rate) * torch.sigmoid(recurrence_gate.float())
    entering = torch.sqrt(-torch.expm1(2.0 * log_factor)) * torch.sigmoid(input_gate.float()) * x.float()
    return scan(torch.exp(log_factor), entering).to(x.dtype)


def get_inputs(batch=4, time=2048, channels=2560):
    tensors = [torch.randn(batch, time, channels, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    return [*tensors, torch.rand(channels, device="cuda") - 4.0]


def get_input_sets():
    for sizes in ((1, 128, 32), (2, 33, 5), (3, 1, 7)):
        yield get_inputs(*sizes)

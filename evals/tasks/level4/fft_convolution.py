"""A long convolution by way of the Fourier transform, as Hyena does it: 4096 steps of 768 channels, fp32, causal.

Each channel has a filter as long as the sequence, and a skip connection.
"""

import torch

LEVEL = 4
TAGS = ("transform", "conv", "fp32", "hyena")
EMULATED_SIZES = {"batch": 2, "channels": 8, "time": 256}


def reference_fn(x, taps, skip):
    """x [batch, channels, time], taps [channels, time], skip [channels]."""
    time = x.shape[-1]
    spectrum = torch.fft.rfft(x, n=2 * time) * torch.fft.rfft(taps, n=2 * time)
    return torch.fft.irfft(spectrum, n=2 * time)[..., :time] + x * skip.unsqueeze(-1)


def get_inputs(batch=16, channels=768, time=4096):
    fading = torch.exp(-8.0 * torch.rand(channels, time, device="cuda"))
    taps = torch.randn(channels, time, device="cuda") * fading * time**-0.5
    return [torch.randn(batch, channels, time, device="cuda"), taps, torch.randn(channels, device="cuda")]


def get_input_sets():
    for sizes in ((1, 4, 256), (2, 3, 33), (3, 5, 1)):
        yield get_inputs(*sizes)

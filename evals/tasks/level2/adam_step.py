"""One Adam step on fp32 parameters: parameters and both moments are returned."""

import torch

LEVEL = 2
TAGS = ("elementwise", "fp32", "outputs", "scalar")


def reference_fn(parameter, gradient, first, second, learning_rate):
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient * gradient
    return parameter - learning_rate * first / (torch.sqrt(second) + 1e-8), first, second


def get_inputs(size=2**24 + 8):
    parameter, gradient, first = (torch.randn(size, device="cuda") for _ in range(3))
    return [parameter, gradient, first, torch.rand(size, device="cuda"), 0.001]


def get_input_sets():
    for size in (1, 127, 4096, 100003):
        yield get_inputs(size)

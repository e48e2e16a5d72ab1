"""One step of an LSTM of 4096 units on 2048 sequences: two products, four gates, the new output and cell."""

import torch
import torch.nn.functional as F

LEVEL = 3
TAGS = ("matmul", "recurrent", "outputs", "fp16")


def reference_fn(x, hidden, cell, input_weight, hidden_weight, bias):
    """x [batch, inputs], hidden and cell [batch, units], weights [4 * units, …] (in, forget, new, out)."""
    gates = F.linear(x.float(), input_weight.float()) + F.linear(hidden.float(), hidden_weight.float(), bias.float())
    enter, keep, new, leave = gates.chunk(4, dim=1)
    new_cell = torch.sigmoid(keep) * cell.float() + torch.sigmoid(enter) * torch.tanh(new)
    return (torch.sigmoid(leave) * torch.tanh(new_cell)).to(x.dtype), new_cell.to(x.dtype)


def get_inputs(batch=2048, inputs=1024, units=4096):
    def draw(*shape, scale=1.0):
        return (scale * torch.randn(shape, device="cuda")).half()

    weights = [draw(4 * units, inputs, scale=inputs**-0.5), draw(4 * units, units, scale=units**-0.5)]
    return [draw(batch, inputs), draw(batch, units), draw(batch, units), *weights, draw(4 * units)]


def get_input_sets():
    for sizes in ((1, 64, 32), (33, 24, 40), (5, 1, 3)):
        yield get_inputs(*sizes)

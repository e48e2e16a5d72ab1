"""Cases of `bench_patterns.py`: loops over time as functions write them, with PyTorch's cells or their own steps.

Beside them cuDNN where it has the layer; its weights do not lie together, and it copies them in each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from pattern_cases import Case, single
from races import Tensor

Values = torch.Tensor
STEPS = 64


def _zeros(x: Values, weights: Values) -> Values:
    return x.new_zeros(x.shape[1], weights.shape[1])


def lstm_cells(x: Values, *weights: Values) -> Values:
    """All states."""
    hidden = cell = _zeros(x, weights[1])
    states = []
    for step in x:
        hidden, cell = torch.lstm_cell(step, (hidden, cell), *weights)
        states.append(hidden)
    return torch.stack(states)


def last_of_gru_cells(x: Values, *weights: Values) -> Values:
    """The last state, as an encoder gives it."""
    hidden = _zeros(x, weights[1])
    for step in x:
        hidden = torch.gru_cell(step, hidden, *weights)
    return hidden


def gru_cells_both_ways(x: Values, *weights: Values) -> Values:
    """All states of two cells, one from the last step on."""
    there = back = _zeros(x, weights[1])
    forth, home = [], []
    for at in range(x.shape[0]):
        there = torch.gru_cell(x[at], there, *weights[:4])
        back = torch.gru_cell(x[-1 - at], back, *weights[4:])
        forth.append(there)
        home.append(back)
    return torch.cat([torch.stack(forth), torch.stack(home[::-1])], -1)


def lstm_of_one_matrix(x: Values, weights: Values, bias: Values) -> Values:
    """Gates in an order of its own, of the input beside the state."""
    hidden = cell = x.new_zeros(x.shape[1], weights.shape[0] // 4)
    states = []
    for step in x:
        forget, come, out, new = F.linear(torch.cat((hidden, step), 1), weights, bias).chunk(4, 1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(come) * torch.tanh(new)
        hidden = torch.sigmoid(out) * torch.tanh(cell)
        states.append(hidden)
    return torch.stack(states)


def gru_of_own_gates(x: Values, *weights: Values) -> Values:
    """Three gates with weights of their own."""
    of_input, of_state, biases = weights[:3], weights[3:6], weights[6:]
    hidden, states = _zeros(x, of_state[0]), []
    for step in x:
        reset, update, given = (F.linear(step, w, b) for w, b in zip(of_input, biases, strict=False))
        reset = torch.sigmoid(reset + F.linear(hidden, of_state[0]))
        update = torch.sigmoid(update + F.linear(hidden, of_state[1]))
        new = torch.tanh(given + reset * F.linear(hidden, of_state[2], biases[3]))
        hidden = (1 - update) * new + update * hidden
        states.append(hidden)
    return torch.stack(states)


def classified_by_two_layers(x: Values, *weights: Values) -> Values:
    """Two layers of LSTM cells side by side, and a linear layer on the last state."""
    below = above = _zeros(x, weights[1])
    cells = [below, above]
    for step in x:
        below, cells[0] = torch.lstm_cell(step, (below, cells[0]), *weights[:4])
        above, cells[1] = torch.lstm_cell(below, (above, cells[1]), *weights[4:8])
    return F.linear(above, *weights[8:])


def cells(gates: int, units: int, inputs: int) -> list[Tensor]:
    """Weights and biases of a cell, in PyTorch's order."""
    rows = gates * units
    return [_of(rows, inputs), _of(rows, units), _of(rows), _of(rows)]


def _of(*shape: int) -> Tensor:
    return Tensor(shape, single, shape[-1] ** -0.5)


def cudnn(layer: Callable[..., Any], states: int) -> Callable[..., Any]:
    """PyTorch's function of a whole layer, for the weights of a cell."""

    def run(x: Values, *weights: Values) -> Values:
        first = _zeros(x, weights[1])[None]
        start = (first, first) if states == 2 else first
        return layer(x, start, weights, True, 1, 0.0, False, False, False)[0]

    return run


def loops() -> Iterator[Case]:
    """Units, rows of the batch, half as many inputs as units."""
    units, rows = 256, 32
    x, half = Tensor((STEPS, rows, units // 2), single), units // 2

    def case(name: str, function: Callable[..., Any], weights: list[Tensor], **others: Any) -> Case:
        return Case(f"{name}, {units} units", function, (x, *weights), 2, compiled="default", tolerance=1e-4, **others)

    yield case("lstm cells", lstm_cells, cells(4, units, half), baselines={"cuDNN": cudnn(torch.lstm, 2)})
    last = cudnn(torch.gru, 1)
    yield case(
        "last of gru cells", last_of_gru_cells, cells(3, units, half), baselines={"cuDNN": lambda *a: last(*a)[-1]}
    )
    yield case("gru cells both ways", gru_cells_both_ways, cells(3, units, half) * 2)
    yield case("lstm of one matrix", lstm_of_one_matrix, [_of(4 * units, units + half), _of(4 * units)])
    own = [*[_of(units, half)] * 3, *[_of(units, units)] * 3, *[_of(units)] * 4]
    yield case("gru of own gates", gru_of_own_gates, own)
    two = [*cells(4, units, half), *cells(4, units, units), _of(10, units), _of(10)]
    yield case("two layers and a classifier", classified_by_two_layers, two)

"""Recurrent layers: a product for what all steps are given, then an operation for the steps that only the tracer knows.

A layer with one step, with few steps and many weights, or with projected states is unrolled as PyTorch does it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from cutesmith.patterns.graph.recurrent_steps import is_one_launch

_INPUTS = "(Tensor given, Tensor weights, Tensor? bias, Tensor hidden"
torch.library.define("cutesmith::recur", f"{_INPUTS}, str kind, bool reverse) -> Tensor")
torch.library.define("cutesmith::recur_lstm", f"{_INPUTS}, Tensor cell, bool reverse) -> (Tensor, Tensor)")


@torch.library.impl("cutesmith::recur", "Meta")
def _recur(given: torch.Tensor, weights: torch.Tensor, *others: Any) -> torch.Tensor:
    return given.new_empty((*given.shape[:-1], weights.shape[-1]))


@torch.library.impl("cutesmith::recur_lstm", "Meta")
def _recur_lstm(given: torch.Tensor, weights: torch.Tensor, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (*given.shape[:-1], weights.shape[-1])
    return given.new_empty(shape), given.new_empty(shape[1:])


def _network(
    kind: str,
    unrolled: Callable[..., Any],
    x: torch.Tensor,
    starts: torch.Tensor | Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_first: bool,
) -> Any:
    """What `torch.lstm` and its like return: the states of the last layer, then the last states of all layers."""
    ways, each = 2 if both_ways else 1, 4 if has_biases else 2
    units, steps = (starts if isinstance(starts, torch.Tensor) else starts[0]).shape[-1], x.shape[batch_first]
    is_taken = x.dtype in (torch.float32, torch.float16, torch.bfloat16) and len(weights) == layers * ways * each
    if not (is_taken and is_one_launch(kind, units, steps)):
        return unrolled(x, starts, weights, has_biases, layers, dropout, train, both_ways, batch_first)
    ends = list[list[torch.Tensor]]()
    is_turned = batch_first
    for layer in range(layers):
        states = list[torch.Tensor]()
        for way in range(ways):
            at = layer * ways + way
            of_input, of_state, *biases = weights[at * each : (at + 1) * each]
            given = F.linear(x, of_input, biases[0] if biases else None)
            inputs = given.transpose(0, 1) if is_turned else given, of_state, biases[1] if biases else None
            if isinstance(starts, torch.Tensor):
                states.append(torch.ops.cutesmith.recur(*inputs, starts[at], kind, way == 1))
                ends.append([states[-1][0 if way else -1]])
            else:
                out, cell = torch.ops.cutesmith.recur_lstm(*inputs, starts[0][at], starts[1][at], way == 1)
                states.append(out)
                ends.append([out[0 if way else -1], cell])
        x, is_turned = torch.cat(states, -1) if both_ways else states[0], False
    return (x.transpose(0, 1) if batch_first else x, *map(torch.stack, zip(*ends, strict=True)))


def decompositions(lstm: Callable[..., Any]) -> dict[Any, Callable[..., Any]]:
    """Those of recurrent networks whose inputs are not packed; `lstm` unrolls one."""
    aten = torch.ops.aten
    found: dict[Any, Callable[..., Any]] = {aten.lstm.input: functools.partial(_network, "lstm", lstm)}
    for kind, operation in (("gru", aten.gru.input), ("tanh", aten.rnn_tanh.input), ("relu", aten.rnn_relu.input)):
        found[operation] = functools.partial(_network, kind, operation.decompose)
    return found

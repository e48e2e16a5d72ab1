"""Recurrent networks in launches: every state is computed once, however many steps there are."""

from __future__ import annotations

import itertools
from unittest import mock

import pytest
import torch
from torch._decomp import decompositions

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.match import whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import exactly, interpret_chain, normal

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}


def network(kind: str, steps: int, *, layers: int = 2, both_ways: bool = True):
    """A recurrent network of inputs (steps, 2, 3) and states of 4, and its arguments."""
    ways = 2 if both_ways else 1
    widths = [width for layer in range(layers) for width in [3 if layer == 0 else 4 * ways] * ways]
    rows = GATES[kind] * 4
    weights = [
        [normal(rows, width, seed=at), normal(rows, 4, seed=at + 50), normal(rows, seed=at), normal(rows, seed=at + 9)]
        for at, width in enumerate(widths)
    ]
    states = [normal(layers * ways, 2, 4, seed=at) for at in range(2 if kind == "lstm" else 1)]
    cell = getattr(torch, kind)

    def function(x, *rest):
        state, flat = rest[: len(states)], list(rest[len(states) :])
        return cell(x, state if len(states) > 1 else state[0], flat, True, layers, 0.0, False, both_ways, False)

    return function, (normal(steps, 2, 3), *states, *(each / 2 for each in itertools.chain(*weights)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "layers", "steps"),
    [("rnn_tanh", 1, 2), *(pytest.param(kind, 2, 3, marks=pytest.mark.slow) for kind in GATES)],
)
def test_a_network_in_both_directions_is_computed(kind, layers, steps):
    function, inputs = network(kind, steps=steps, layers=layers)
    plan = whole_or_cut(trace_function(function, inputs))
    for ours, theirs in zip(interpret_chain(plan, inputs), exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_states_have_no_dimension_that_pytorch_2_11_leaves_in_its_decomposition():
    def older(*args, **named):
        out, states = one_layer_lstm(*args, **named)
        return out, tuple(state.unsqueeze(0) for state in states)

    one_layer_lstm = decompositions.one_layer_lstm
    function, inputs = network("lstm", steps=1, layers=1, both_ways=False)
    with mock.patch.object(decompositions, "one_layer_lstm", older):
        graph = trace_function(function, inputs)
    for ours, theirs in zip(interpret(graph, inputs), exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_work_grows_with_the_number_of_steps_alone(kind):
    def work(steps):
        plan = whole_or_cut(trace_function(*network(kind, steps, layers=1, both_ways=False)))
        return sum(node.is_pointwise for launch in plan.launches for node in launch.plan.graph.nodes())

    three, six, nine = map(work, (3, 6, 9))
    assert nine - six <= 1.2 * (six - three)  # more than 1.5 times, where each step repeats those before it


@pytest.mark.slow
def test_a_long_computation_is_stored_before_it_is_taken_apart():
    def function(x, w):
        value = x @ w
        for at in range(60):
            value = torch.sin(value) + at
        return torch.cat((value, value.flip(0)))

    inputs = (normal(4, 8), normal(8, 8))
    plan = whole_or_cut(trace_function(function, inputs))
    assert [launch.plan.pattern for launch in plan.launches] == ["contraction", "elementwise"]
    torch.testing.assert_close(interpret_chain(plan, inputs)[0], exactly(function, inputs)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((2, 3), (2, 1, 3)),
        ((1, 6), (2, 3)),
        ((4, 6), (24,)),
        ((4, 6), (2, 2, 3, 2)),
        ((4, 6), (8, 3)),
        ((2, 3, 5), (6, 5)),
        ((2, 1, 3), (6,)),
    ],
)
def test_reshaped_coordinates_are_arithmetic(old, new):
    for dim, size in enumerate(old):
        build = GraphBuilder()
        node = build.materialise(build.reshape(build.iota(old, dim), new))
        assert not any(each.op == "reshape" for each in Graph((), (node,), ((),), False).nodes())
        sizes = [-1 if at == dim else 1 for at in range(len(old))]
        expected = torch.arange(size).view(sizes).expand(old).reshape(new)
        assert torch.equal(interpret(Graph((), (node,), (expected.stride(),), False), ())[0], expected)


def test_products_with_masks_of_other_ranks_are_cut():
    def function(x, log):
        sums = log.cumsum(-1)
        steps = sums[..., :, None] - sums[..., None, :]
        mask = torch.ones(4, 4, dtype=torch.bool, device=x.device).tril()
        decay = torch.exp(steps.masked_fill(~mask, -torch.inf))
        return torch.einsum("bhls,bshp->blhp", decay, x)

    inputs = (normal(2, 4, 3, 5), -normal(2, 3, 4).abs())
    plan = whole_or_cut(trace_function(function, inputs))
    torch.testing.assert_close(interpret_chain(plan, inputs)[0], exactly(function, inputs)[0], rtol=1e-5, atol=1e-5)


class Keeper:
    """A function that keeps a state between calls, as a module with a plain tensor does."""

    def __init__(self, size: int) -> None:
        self.state = torch.randn(2, size)

    def __call__(self, x, initial, w):
        self.state.copy_(initial)
        self.state = torch.tanh(torch.cat((x, self.state.to(x)), 1) @ w)
        return self.state


def test_a_state_that_each_call_overwrites_is_no_state():
    inputs = (normal(2, 3), normal(2, 4), normal(7, 4))
    plan = whole_or_cut(trace_function(Keeper(4), inputs))
    (ours,) = interpret_chain(plan, inputs)
    torch.testing.assert_close(ours, Keeper(4)(*inputs), rtol=1e-5, atol=1e-5)


def test_a_state_that_is_overwritten_in_part_is_refused():
    kept = torch.randn(4, 3)

    def function(x):
        kept[:2].copy_(x)
        return kept.to(x.device) + 1

    with pytest.raises(UnmatchedError):
        trace_function(function, (normal(2, 3),))

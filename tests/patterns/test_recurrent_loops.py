"""Loops over time that a function writes itself, as recurrent layers: PyTorch's cells, its own, and near misses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutesmith.patterns.match import whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.recurrent import check, launches
from tests.patterns.running import as_list, exactly, interpret_chain, normal

SLOW = pytest.mark.slow
INPUTS, UNITS, ROWS = 6, 20, 3


def loop(cell, states: int = 1, *, reverse: bool = False, kept: str = "all", zeros: bool = False):
    """A function of x (steps, rows, inputs), the first states, unless those are `zeros`, and of weights.

    It returns the states of all steps and the last ones, or what is `kept`: the "last" ones, or "rows first", where
    x and the result have the rows in the first dimension.
    """
    dim = 1 if kept == "rows first" else 0

    def function(x, *rest):
        known = [x.new_zeros(x.shape[1 - dim], UNITS) for _ in range(states)] if zeros else list(rest[:states])
        weights, found = rest if zeros else rest[states:], []
        for step in reversed(range(x.shape[dim])) if reverse else range(x.shape[dim]):
            known = as_list(cell(x.select(dim, step), *known, *weights))
            found.append(known[0])
        return known if kept == "last" else (torch.stack(found[::-1] if reverse else found, dim), *known)

    return function


def simple(x, state, of_input, of_state, bias):
    return torch.tanh(x @ of_input + state @ of_state + bias)


def joined_relu(x, state, weights, bias):
    return torch.relu(nn.functional.linear(torch.cat((x, state), 1), weights, bias))


def pytorchs_lstm(x, hidden, cell, *weights):
    return torch.lstm_cell(x, (hidden, cell), *weights)


def pytorchs_gru(x, hidden, *weights):
    return torch.gru_cell(x, hidden, *weights)


def lstm_in_another_order(x, hidden, cell, weights, bias):
    forget, come, out, new = nn.functional.linear(torch.cat((hidden, x), 1), weights, bias).chunk(4, 1)
    cell = new.tanh() * come.sigmoid() + cell * forget.sigmoid()
    return torch.tanh(cell) * out.sigmoid(), cell


def lstm_of_own_gates(x, hidden, cell, *weights):
    of_input, of_state, biases = weights[:4], weights[4:8], weights[8:]
    sums = [x @ a + hidden @ b + c for a, b, c in zip(of_input, of_state, biases, strict=True)]
    cell = torch.sigmoid(sums[1]) * cell + torch.sigmoid(sums[0]) * torch.tanh(sums[2])
    return torch.sigmoid(sums[3]) * torch.tanh(cell), cell


def gru_of_own_gates(x, state, *weights):
    of_input, of_state, biases = weights[:3], weights[3:6], weights[6:]
    given = [x @ a + b for a, b in zip(of_input, biases[:3], strict=True)]
    reset = torch.sigmoid(given[0] + state @ of_state[0])
    update = torch.sigmoid(state @ of_state[1] + given[1])
    new = torch.tanh(given[2] + (state @ of_state[2] + biases[3]) * reset)
    return update * state + new * (1 - update)


def gru_whose_update_is_new(x, state, *weights):
    """The update gate says what is new, as in the paper on gated recurrent networks, not what is kept."""
    reset, update, new = nn.functional.linear(x, weights[0], weights[2]).chunk(3, 1)
    reset_state, update_state, new_state = nn.functional.linear(state, weights[1], weights[3]).chunk(3, 1)
    update = torch.sigmoid(update + update_state)
    new = torch.tanh(new + torch.sigmoid(reset + reset_state) * new_state)
    return (1 - update) * state + update * new


def gru_that_moves_to_what_is_new(x, state, *weights):
    of_input, of_state, biases = weights[:3], weights[3:6], weights[6:]
    reset = torch.sigmoid(x @ of_input[0] + biases[0] + state @ of_state[0])
    update = torch.sigmoid(state @ of_state[1] + x @ of_input[1] + biases[1])
    new = torch.tanh(x @ of_input[2] + biases[2] + (state @ of_state[2] + biases[3]) * reset)
    return state + update * (new - state)


def arguments(steps: int, states: int, *shapes, rows_first: bool = False, dtype: torch.dtype = torch.float32):
    x = normal(*((ROWS, steps) if rows_first else (steps, ROWS)), INPUTS, dtype=dtype)
    starts = [normal(ROWS, UNITS, seed=1 + at, dtype=dtype) for at in range(states)]
    weights = [normal(*shape, seed=at + 3, dtype=dtype) / shape[-1] ** 0.5 for at, shape in enumerate(shapes)]
    return x, *starts, *weights


def weights_of(gates: int):
    """Shapes of the weights that PyTorch's cells have."""
    return (gates * UNITS, INPUTS), (gates * UNITS, UNITS), (gates * UNITS,), (gates * UNITS,)


def weights_of_own(gates: int, biases: int):
    """Shapes of the weights where each gate has its own."""
    return *((INPUTS, UNITS),) * gates, *((UNITS, UNITS),) * gates, *((UNITS,),) * biases


TWO = (INPUTS, UNITS), (UNITS, UNITS), (UNITS,)
JOINED = (UNITS, INPUTS + UNITS), (UNITS,)
JOINED_LSTM = (4 * UNITS, UNITS + INPUTS), (4 * UNITS,)

LOOPS = {
    "two products": (loop(simple), arguments(5, 1, *TWO)),
    "the last step first": (loop(simple, reverse=True), arguments(5, 1, *TWO)),
    "joined": (loop(joined_relu), arguments(6, 1, *JOINED)),
    "lstm": (loop(pytorchs_lstm, 2), arguments(5, 2, *weights_of(4))),
    "lstm from zeros": (loop(pytorchs_lstm, 2, zeros=True), arguments(5, 0, *weights_of(4))),
    "lstm, the last step first": (loop(pytorchs_lstm, 2, reverse=True, zeros=True), arguments(5, 0, *weights_of(4))),
    "lstm, the last states": (loop(pytorchs_lstm, 2, kept="last"), arguments(5, 2, *weights_of(4))),
    "lstm, rows first": (loop(pytorchs_lstm, 2, kept="rows first"), arguments(5, 2, *weights_of(4), rows_first=True)),
    "lstm in another order": (loop(lstm_in_another_order, 2), arguments(6, 2, *JOINED_LSTM)),
    "lstm of own gates": (loop(lstm_of_own_gates, 2, kept="last", zeros=True), arguments(5, 0, *weights_of_own(4, 4))),
    "gru": (loop(pytorchs_gru), arguments(5, 1, *weights_of(3))),
    "gru from zeros": (loop(pytorchs_gru, zeros=True), arguments(5, 0, *weights_of(3))),
    "gru, the last step first": (loop(pytorchs_gru, reverse=True, zeros=True), arguments(5, 0, *weights_of(3))),
    "gru, the last state": (loop(pytorchs_gru, kept="last", zeros=True), arguments(5, 0, *weights_of(3))),
    "gru, what is new": (loop(gru_whose_update_is_new), arguments(5, 1, *weights_of(3))),
    "gru, what is new, the last": (loop(gru_whose_update_is_new, kept="last"), arguments(5, 1, *weights_of(3))),
    "gru, what is new, from zeros": (loop(gru_whose_update_is_new, zeros=True), arguments(5, 0, *weights_of(3))),
    "gru, a step to what is new": (loop(gru_that_moves_to_what_is_new), arguments(5, 1, *weights_of_own(3, 4))),
    "gru of own gates": (
        loop(gru_of_own_gates, kept="rows first"),
        arguments(5, 1, *weights_of_own(3, 4), rows_first=True),
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_read_as_a_layer(name):
    function, inputs = LOOPS[name]
    plan = whole_or_cut(trace_function(function, inputs))
    assert len(launches(plan)) == 1
    assert [each.plan.pattern for each in plan.launches].count("contraction") == 1
    for ours, wanted in zip(interpret_chain(plan, inputs), exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)


@SLOW
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_one_launch(name, tmp_path):
    check(*LOOPS[name], tmp_path, within=2e-6)


@SLOW
@pytest.mark.parametrize(
    ("function", "shapes", "states"),
    [(loop(simple), TWO, 1), (loop(pytorchs_lstm, 2), weights_of(4), 2), (loop(pytorchs_gru), weights_of(3), 1)],
    ids=["simple", "lstm", "gru"],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_loops_of_16_bits(function, shapes, states, dtype, tmp_path):
    check(function, arguments(5, states, *shapes, dtype=dtype), tmp_path, within=0.03)


# Near misses -----------------------------------------------------------------------------------------


def coupled(x, hidden, cell, weights, bias):
    """What is not forgotten comes in."""
    forget, new, out = nn.functional.linear(torch.cat((x, hidden), 1), weights, bias).chunk(3, 1)
    cell = forget.sigmoid() * cell + (1 - forget.sigmoid()) * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def with_peepholes(x, hidden, cell, weights, bias, seen):
    come, forget, new, out = nn.functional.linear(torch.cat((x, hidden), 1), weights, bias).chunk(4, 1)
    cell = (forget + seen * cell).sigmoid() * cell + come.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def normalised(x, hidden, cell, weights, bias):
    sums = nn.functional.linear(torch.cat((x, hidden), 1), weights, bias)
    come, forget, new, out = nn.functional.layer_norm(sums, sums.shape[1:]).chunk(4, 1)
    cell = forget.sigmoid() * cell + come.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def open_cell(x, hidden, cell, weights, bias):
    come, forget, new, out = nn.functional.linear(torch.cat((x, hidden), 1), weights, bias).chunk(4, 1)
    cell = forget.sigmoid() * cell + come.sigmoid() * new.tanh()
    return out.sigmoid() * cell, cell


def overlapping_gates(x, hidden, cell, weights, bias):
    sums = nn.functional.linear(torch.cat((x, hidden), 1), weights, bias)
    come, forget, new, out = (sums[:, at : at + UNITS] for at in (0, 10, 20, 30))
    cell = forget.sigmoid() * cell + come.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def reset_before(x, state, *weights):
    """The state is reset before it is multiplied, as in the paper on GRUs."""
    of_input, of_state, biases = weights[:3], weights[3:6], weights[6:]
    given = [x @ a + b for a, b in zip(of_input, biases, strict=True)]
    reset = torch.sigmoid(given[0] + state @ of_state[0])
    update = torch.sigmoid(given[1] + state @ of_state[1])
    return update * state + (1 - update) * torch.tanh(given[2] + (reset * state) @ of_state[2])


def fed_back(x, hidden, *weights):
    """Each step is given what the one before gave."""
    return torch.gru_cell(x + hidden[:, :INPUTS], hidden, *weights)


OTHERS = {
    "coupled": (coupled, 2, ((3 * UNITS, UNITS + INPUTS), (3 * UNITS,))),
    "peepholes": (with_peepholes, 2, (*JOINED_LSTM, (UNITS,))),
    "normalised": (normalised, 2, JOINED_LSTM),
    "open cell": (open_cell, 2, JOINED_LSTM),
    "reset before": (reset_before, 1, weights_of_own(3, 3)),
    "fed back": (fed_back, 1, weights_of(3)),
}


@SLOW
@pytest.mark.parametrize(("cell", "states", "shapes"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("kept", ["all", "last"])
def test_other_cells_stay_steps_and_are_right(cell, states, shapes, kept):
    function, inputs = loop(cell, states, kept=kept), arguments(5, states, *shapes)
    plan = whole_or_cut(trace_function(function, inputs))
    assert not launches(plan)
    for ours, wanted in zip(interpret_chain(plan, inputs), exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)


@SLOW
@pytest.mark.parametrize(
    "cell",
    [
        lambda x, state, of_input, of_state, bias: torch.sigmoid(x @ of_input + state @ of_state + bias),
        lambda x, state, of_input, of_state, bias: torch.tanh((x @ of_input + state @ of_state).int() + bias),
        lambda x, state, of_input, of_state, bias: torch.tanh(x @ of_input + 2 * (state @ of_state) + bias * state),
        lambda x, state, of_input, of_state, bias: torch.tanh(x @ of_input + (state + 1) @ of_state + bias),
        lambda x, state, of_input, of_state, bias: torch.tanh((x @ of_input + state @ of_state).bfloat16().float()),
        lambda x, state, of_input, of_state, bias: torch.tanh(x @ of_input + state @ of_state[:, :1] + bias),
        lambda x, state, of_input, of_state, bias: torch.tanh(x @ of_input + state @ (of_state * state[:1]) + bias),
    ],
    ids=[
        "another function",
        "integers between",
        "more of the state",
        "a function of the state",
        "rounded between",
        "one column",
        "weights of the state",
    ],
)
def test_other_simple_steps_stay_steps_and_are_right(cell):
    function, inputs = loop(cell), arguments(5, 1, *TWO)
    plan = whole_or_cut(trace_function(function, inputs))
    assert not launches(plan)
    for ours, wanted in zip(interpret_chain(plan, inputs), as_list(function(*inputs)), strict=True):
        torch.testing.assert_close(ours.float(), wanted, rtol=0, atol=1e-3)


def test_a_first_step_that_is_a_sum_is_no_product_with_zeros():
    def function(x, state, of_input, of_state, bias):
        masked = torch.where(state > 0, state, 0.0).sum(0, keepdim=True)
        states = [torch.tanh(x[0] @ of_input + masked + bias)]
        for step in x[1:]:
            states.append(torch.tanh(step @ of_input + states[-1] @ of_state + bias))
        return torch.stack(states)

    inputs = arguments(5, 1, *TWO)
    plan = whole_or_cut(trace_function(function, inputs))
    for ours, wanted in zip(interpret_chain(plan, inputs), exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)


def test_cells_of_another_type_keep_it():
    def cells(x, hidden, cell, weights, bias):
        come, forget, new, out = nn.functional.linear(torch.cat((x, hidden), 1), weights, bias).float().chunk(4, 1)
        cell = forget.sigmoid() * cell + come.sigmoid() * new.tanh()
        return (out.sigmoid() * cell.tanh()).to(hidden.dtype), cell

    x, hidden, cell, *weights = arguments(5, 2, *JOINED_LSTM, dtype=torch.bfloat16)
    inputs = x, hidden, cell.float(), *weights
    plan = whole_or_cut(trace_function(loop(cells, 2), inputs))
    assert not launches(plan), "a layer has cells of the type of its states"
    for ours, wanted in zip(interpret_chain(plan, inputs), loop(cells, 2)(*inputs), strict=True):
        assert ours.dtype == wanted.dtype
        torch.testing.assert_close(ours.float(), wanted.float(), rtol=0, atol=0.02)


@SLOW
def test_gates_may_share_columns():
    function, inputs = loop(overlapping_gates, 2), arguments(5, 2, *JOINED_LSTM)
    plan = whole_or_cut(trace_function(function, inputs))
    assert len(launches(plan)) == 1
    for ours, wanted in zip(interpret_chain(plan, inputs), exactly(function, inputs), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5)

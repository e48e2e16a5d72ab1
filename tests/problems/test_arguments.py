"""Arguments as flat values: what is taken apart comes back, options travel as JSON."""

from __future__ import annotations

import math

import pytest
import torch

from cutesmith.problems.arguments import Nesting, decoded, encoded, gathered, is_option, names_of, of_values, spread

X, Y = torch.ones(2), torch.ones(3)


def step(parameters, gradients, betas, mode, *more): ...


def test_lists_of_tensors_come_back_as_they_were():
    arguments = [[X, Y], (X, [Y, 2, None]), (0.9, 0.99), "none", torch.Size([2, 3])]
    values = spread(arguments)
    assert values[:9] == [X, Y, X, Y, 2, None, (0.9, 0.99), "none", (2, 3)] and isinstance(values[9], Nesting)
    assert gathered(values) == arguments
    assert of_values(lambda *given: given)(*values) == tuple(arguments)
    names = "parameters_0 parameters_1 gradients_0 gradients_1_0 gradients_1_1 gradients_1_2 betas mode x4".split()
    assert names_of(step, values, unnamed="x") == names


def test_plain_arguments_are_their_values():
    arguments = [X, 1, "text", (1, 2)]
    assert spread(arguments) == arguments and gathered(arguments) == arguments
    assert names_of(step, arguments, unnamed="x") == ["parameters", "gradients", "betas", "mode"]


@pytest.mark.parametrize(
    "option",
    [None, "re\ud800é\"'", torch.bfloat16, (1, -2.5, True), [1, (2, [None, "x"])], [], (), 2**70, 0.1]
    + [Nesting((("list", (None, ("tuple", (None,)))), None)), (math.inf, -math.inf), torch.Size([4, 8])],
)
def test_options_travel_exactly(option):
    again = decoded(encoded(option))
    assert again == option and type(again) is (tuple if type(option) is torch.Size else type(option))


def test_other_values_are_not_options():
    assert not any(map(is_option, (X, 1, 1.5, True, {}, [X], (1, {}), 1j, torch.device("cpu"))))
    for text in ('{"code": "x"}', '{"dtype": "load"}', '{"float": "x"}', "[1"):
        with pytest.raises(ValueError):
            decoded(text)

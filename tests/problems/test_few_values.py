"""Inputs of which some values are read while they are drawn: the large ones cost nothing, and numbers are right."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.tracing.trace import drawn
from cutesmith.problems.few_values import MOST_VALUES, FewValues
from cutesmith.recording.facade import cuda_as_cpu

LARGE = (1 << 20, 1 << 20)  # 4 TB


def scaled(device="cuda"):
    mean = float(torch.empty(1, device=device).uniform_(2, 3).item())
    x = torch.normal(mean, 1.0, LARGE) + torch.ones(LARGE, device=device)
    rows = torch.arange(MOST_VALUES, device=device)
    return [x.to("cuda").T, x[rows].cuda(), rows.cuda(), mean]


@pytest.mark.parametrize("fake", [True, False])
def test_only_large_tensors_lack_values(fake):
    with cuda_as_cpu(fake=fake), FewValues():
        mean, x, rows = (float(torch.empty(1).uniform_(2, 3)), torch.randn(LARGE), torch.arange(4))
        assert 2 <= mean <= 3 and (rows * 2).tolist() == [0, 2, 4, 6]
        assert (x + rows[0]).shape == x.shape
        with pytest.raises(RuntimeError):
            x[0, 0].item()


def test_what_cannot_be_drawn_whole_is_drawn_where_a_small_value_is_read():
    turned, some, rows, mean = drawn(scaled)
    assert (turned.shape, turned.stride()) == (LARGE, (1, LARGE[0]))
    assert some.shape == (MOST_VALUES, LARGE[1]) and rows.dtype == torch.int64 and 2 <= mean <= 3


@pytest.mark.parametrize("seed", [torch.manual_seed, lambda seed: {"generator": torch.Generator().manual_seed(seed)}])
def test_numbers_of_a_seed_are_those_that_it_gives_with_all_values(seed):
    def draw():
        how = seed(7)
        how = how if isinstance(how, dict) else {}
        large = torch.rand(2 * MOST_VALUES, **how)
        return [large, int(torch.randint(1 << 30, (1,), **how))]

    assert drawn(draw)[1] == draw()[1]


def test_the_state_of_random_numbers_stays():
    before = torch.get_rng_state()
    with FewValues():
        torch.rand(3)
    assert torch.equal(before, torch.get_rng_state())

"""Results that are powers of two (float8_e8m0fnu) are compared as exponents."""

from __future__ import annotations

import pytest
import torch

from tests.judge.test_open_ties import said

E8M0 = torch.float8_e8m0fnu


def scales(x):
    """The power of two at or below the largest number of each row, and the row by it."""
    scale = torch.exp2(torch.floor(torch.log2(x.abs().amax(-1, keepdim=True))))
    return scale.to(E8M0), x / scale


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("rows", [1, 40])
def test_a_scale_is_right_or_a_factor_of_two_off(factor, rows):
    torch.manual_seed(0)
    x = 1.0 + 0.9 * torch.rand(64, 32)
    right, quotients = scales(x)
    given = right.float()
    given[:rows] *= factor
    wrong, _ = said(scales, x, [given.to(E8M0), quotients])
    assert bool(wrong[0]) == (factor != 1.0) and not wrong[1]


def test_both_neighbours_are_right_where_rounding_decides():
    """The largest float32 below 2 and a little more is 2 in float32, and less in float64."""

    def of_more(x):
        return scales(x.abs() + 6.1e-8)[0]

    x = torch.full((64, 32), 1.5)
    x[:4, 0] = torch.tensor(2.0).nextafter(torch.tensor(0.0))
    by_float32, by_float64 = of_more(x).float(), torch.ones(64, 1)
    assert (by_float32 != by_float64).sum() == 4
    for given in (by_float32, by_float64):
        assert not said(of_more, x, [given.to(E8M0)])[0][0]
    assert said(of_more, x, [(2 * by_float32).to(E8M0)])[0][0]

"""Inputs with fewer rows for the emulated GPU."""

import torch

from cutesmith.checks.cases import shrink


def shapes(values):
    return [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]


def test_the_largest_outer_dimension_is_halved_until_it_fits():
    x, residual, weight = torch.randn(512, 64), torch.randn(512, 64), torch.randn(64)
    assert shapes(shrink([x, residual, weight, 1e-6], 4096)) == [(16, 64), (16, 64), (64,)]


def test_columns_stay_however_many():
    assert shapes(shrink([torch.randn(4, 5000)], 1000)) == [(1, 5000)]
    assert shapes(shrink([torch.randn(5000)], 1000)) == [(5000,)]


def test_a_size_that_is_a_last_dimension_somewhere_stays():
    assert shapes(shrink([torch.randn(64, 64), torch.randn(64)], 100)) == [(64, 64), (64,)]


def test_labels_stay_inside_what_they_index():
    table, index = torch.randn(1000, 8), torch.randint(1000, (300, 4))
    smaller, fewer = shrink([table, index], 400)
    assert smaller.shape[0] < 1000
    assert int(fewer.max()) < smaller.shape[0]


def test_small_inputs_are_left_alone():
    x = torch.randn(8, 8)
    assert torch.equal(shrink([x, 3], 64)[0], x)
    assert shrink([x, 3], 64)[1] == 3

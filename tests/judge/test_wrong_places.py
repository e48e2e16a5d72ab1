"""The pattern of wrong elements is told in words."""

import pytest
import torch

from cutesmith.judge.reference_side.wrong_places import where

PATTERNS = {
    "the last 12 of dimension 1": (slice(None), slice(52, None)),
    "one in 4 from 3 on of dimension 1": (slice(None), slice(3, None, 4)),
    "the first 3 of dimension 0": (slice(0, 3), slice(None)),
    "index 7 of dimension 0": (7, slice(None)),
    "8 to 15 of dimension 0, 16 to 31 of dimension 1": (slice(8, 16), slice(16, 32)),
    "at 3, 7, 20 and 1 more of dimension 1": (slice(None), [3, 7, 20, 41]),
    "everywhere": (slice(None), slice(None)),
}


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_is_named(text):
    wrong = torch.zeros(32, 64, dtype=torch.bool)
    wrong[PATTERNS[text]] = True
    assert sorted(where(wrong.view(-1), (32, 64)).split(", ")) == sorted(text.split(", "))


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (0, "where dimensions 0 and 1 have one index"),
        (3, "where the index of dimension 1 is that of dimension 0 + 3"),
        (-2, "where the index of dimension 1 is that of dimension 0 - 2"),
    ],
)
def test_a_diagonal_is_named(offset, text):
    wrong = (
        torch.eye(32, dtype=torch.bool).roll(offset, 1).tril()
        if offset < 0
        else torch.eye(32).roll(offset, 1).triu() > 0
    )
    assert where(wrong.reshape(-1), (32, 32)) == text


def test_what_is_scattered_has_none():
    wrong = torch.rand(64 * 64) < 0.3
    assert where(wrong, (64, 64)) == "" and where(torch.zeros(4, dtype=torch.bool), (4,)) == ""


def test_a_step_that_goes_on_from_row_to_row_is_named():
    wrong = torch.zeros(20 * 37, dtype=torch.bool)
    wrong[3::7] = True
    assert where(wrong, (20, 37)) == "in steps of 7 from 3 on, counted through all dimensions"
    generator = torch.Generator().manual_seed(0)
    some_are_right = wrong & (torch.rand(wrong.shape, generator=generator) < 0.5)
    assert where(some_are_right, (20, 37)) == "in steps of 7 from 3 on, counted through all dimensions"
    wrong[4] = True
    assert where(wrong, (20, 37)) == ""

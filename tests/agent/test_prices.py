"""What a reply costs, against sums made by hand and what the SDK knows of models."""

from __future__ import annotations

import typing

import pytest

from cutesmith.agent.models.anthropic_model import DEFAULT_MODEL
from cutesmith.agent.models.model import Usage
from cutesmith.agent.models.prices import PRICES, Price, dollars, price_of

MILLION = Usage(1_000_000, 1_000_000, 1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("model", "usage", "expected"),
    [
        ("claude-opus-4-8", Usage(input_tokens=1000, output_tokens=2000), 0.005 + 0.050),
        ("claude-opus-4-8", Usage(cache_read_tokens=80_000, cache_write_tokens=4000), 0.040 + 0.025),
        ("claude-opus-5-5", MILLION, 4 + 20 + 5 + 0.2),
        ("claude-sonnet-4-6", MILLION, 3 + 15 + 3.75 + 0.3),
        ("claude-haiku-4-5-20251001", MILLION, 1 + 5 + 1.25 + 0.1),
        ("claude-opus-4-5-20251101", MILLION, 5 + 25 + 6.25 + 0.5),
        ("claude-fable-5-2", MILLION, 8 + 40 + 10 + 0.2),
        ("claude-haiku-5-5", Usage(60_000, 1000, 30_000, 10_000), 0.006 + 0.0005 + 0.0003 + 0.00125),
        ("claude-haiku-5-5", Usage(60_000, 1000, 30_000, 10_001), 0.030 + 0.0025 + 0.0015 + 0.006250625),
        ("claude-opus-4-8", Usage(), 0),
    ],
)
def test_the_sum_of_four_kinds_of_tokens(model, usage, expected):
    assert dollars(model, usage) == pytest.approx(expected)


@pytest.mark.parametrize("model", ["", "gpt-oss", "claude-opus-4-8-mini", "claude-opus-9", "claude-opus-4-8-2025"])
def test_no_price_is_made_up(model):
    assert price_of(model) is None
    assert dollars(model, MILLION) is None


@pytest.mark.parametrize("model", PRICES)
def test_the_rows_keep_the_documented_proportions(model):
    """A cache entry of five minutes is written at 1.25 times the input price, and read at a tenth of it at most."""
    price = PRICES[model]
    assert price.cache_write == pytest.approx(1.25 * price.input)
    assert price.cache_read <= 0.1 * price.input + 1e-9
    assert price.output == 5 * price.input


def test_a_bound_takes_the_price_of_the_longest_prompts():
    assert price_of("claude-haiku-5-5") == Price(0.50, 2.50, 0.625, 0.05)
    assert price_of("claude-haiku-5-5", 100_000) == Price(0.10, 0.50, 0.125, 0.01)


@pytest.mark.slow
def test_every_row_is_a_model_of_the_sdk_or_was_one_and_the_default_model_has_one():
    from anthropic.types.model import Model

    assert DEFAULT_MODEL in PRICES
    known = {name for part in typing.get_args(Model) for name in typing.get_args(part)}
    assert set(PRICES) - known == {"claude-opus-4-1"}  # retired on Anthropic's own platform

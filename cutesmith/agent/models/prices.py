"""What a reply costs: dollars per million tokens of the Claude models, as Anthropic lists them.

Every number was read on a page of Anthropic's: the table at SOURCE, the model's own page
(https://platform.claude.com/docs/en/models/NAME/overview), or the release notes
(https://platform.claude.com/docs/en/release-notes/overview). A model whose four prices were not all read there has no
row and no known price. Not covered, because cutesmith asks for none of it: batches, cache entries of an hour, the fast
mode, a processing region.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cutesmith.agent.models.model import Usage

SOURCE = "https://platform.claude.com/docs/en/about-claude/pricing"
PRICES_AS_OF = "2026-10-07"
"""The day of the last change below: the release notes lower what Claude Sonnet 5.5 reads from its cache."""


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens; `cache_write` of an entry that lives for five minutes."""

    input: float
    output: float
    cache_write: float
    cache_read: float


OPUS = Price(5.0, 25.0, 6.25, 0.50)
SONNET_4 = Price(3.0, 15.0, 3.75, 0.30)
SONNET_5 = Price(2.0, 10.0, 2.50, 0.20)
FABLE_5 = Price(10.0, 50.0, 12.50, 1.00)
FABLE_5_1 = Price(10.0, 50.0, 12.50, 0.25)

PRICES: dict[str, Price] = {
    "claude-fable-5-1": FABLE_5_1,
    "claude-mythos-5-1": FABLE_5_1,
    "claude-fable-5": FABLE_5,
    "claude-mythos-5": FABLE_5,
    "claude-opus-5-5": Price(4.0, 20.0, 5.00, 0.20),
    "claude-opus-5": OPUS,
    "claude-opus-4-8": OPUS,
    "claude-opus-4-7": OPUS,
    "claude-opus-4-6": OPUS,
    "claude-opus-4-5": OPUS,
    "claude-opus-4-1": Price(15.0, 75.0, 18.75, 1.50),
    "claude-sonnet-5-5": Price(2.0, 10.0, 2.50, 0.10),
    "claude-sonnet-5": SONNET_5,
    "claude-sonnet-4-6": SONNET_4,
    "claude-sonnet-4-5": SONNET_4,
    "claude-haiku-4-5": Price(1.0, 5.0, 1.25, 0.10),
}

_DATE = re.compile(r"-20\d{6}$")


def price_of(model: str) -> Price | None:
    """The price of a model by its alias or its dated name, such as claude-opus-4-5-20251101; None when not known."""
    return PRICES.get(_DATE.sub("", model))


def dollars(model: str, usage: Usage) -> float | None:
    """What these tokens cost, in dollars; None when the model's price is not known."""
    price = price_of(model)
    if price is None:
        return None
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_write_tokens * price.cache_write
        + usage.cache_read_tokens * price.cache_read
    ) / 1e6

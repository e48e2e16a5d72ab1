"""What a reply costs: dollars per million tokens of the Claude models, as Anthropic lists them.

Sources, read in November 2026: the table at SOURCE, each model's page (https://platform.claude.com/docs/en/models/,
then NAME/overview), the models overview (https://platform.claude.com/docs/en/models/overview, the first to show Claude
Fable 5.2), and the release notes (https://platform.claude.com/docs/en/release-notes/overview). The overview does not
show cache prices; those of Claude Fable 5.2 are from two price lists that quote SOURCE
(https://github.com/archid21/rightsize/releases/tag/v0.10.2, https://docs.apiyi.com/en/news/claude-fable-5-2-launch.md).
A model without four sourced prices has no row and no known price. Batches, cache entries of an hour, the fast mode and
processing regions are not covered: cutesmith asks for none of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from cutesmith.agent.models.model import Usage

SOURCE = "https://platform.claude.com/docs/en/about-claude/pricing"
PRICES_AS_OF = "2026-11-10"
"""The day of the last change below: the prices of Claude Fable 5.2, released on 9 November."""


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
    "claude-fable-5-2": Price(8.0, 40.0, 10.00, 0.20),
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
    "claude-haiku-5-5": Price(0.10, 0.50, 0.125, 0.01),
    "claude-haiku-4-5": Price(1.0, 5.0, 1.25, 0.10),
}

LONG_PROMPTS: dict[str, tuple[int, Price]] = {"claude-haiku-5-5": (100_000, Price(0.50, 2.50, 0.625, 0.05))}
"""Models that cost more where the prompt, cached tokens included, has more tokens than this."""

_DATE = re.compile(r"-20\d{6}$")


def price_of(model: str, prompt_tokens: float = math.inf) -> Price | None:
    """The price of a model by its alias or its dated name, such as claude-opus-4-5-20251101; None when not known.

    Without `prompt_tokens`, the price of the longest prompts, which is the highest.
    """
    alias = _DATE.sub("", model)
    limit, dearer = LONG_PROMPTS.get(alias, (math.inf, None))
    return dearer if prompt_tokens > limit else PRICES.get(alias)


def dollars(model: str, usage: Usage) -> float | None:
    """What these tokens of one reply cost, in dollars; None when the model's price is not known."""
    prompt = usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens
    price = price_of(model, prompt)
    if price is None:
        return None
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_write_tokens * price.cache_write
        + usage.cache_read_tokens * price.cache_read
    ) / 1e6

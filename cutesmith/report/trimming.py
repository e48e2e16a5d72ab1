"""Long texts on a page of bounded size: all are cut to one common length in the middle, the shortest not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MARK = "… {:,} characters left out …"


LEAST = 80  # bytes that every text may take


class Kept:
    """A text of the page; as a string it is what the page's budget leaves of it. Settle the budget first."""

    def __init__(self, text: str, budget: TextBudget) -> None:
        self.full = text
        self._budget = budget

    def __str__(self) -> str:
        return self._budget.cut(self.full)

    def __bool__(self) -> bool:
        return bool(self.full)


@dataclass
class TextBudget:
    """The long texts of a page; `most` bytes of HTML may one of them take, however much room there is."""

    most: int = 100_000
    _weights: list[int] = field(default_factory=list)
    _limit: int = 0

    def keep(self, text: str) -> Kept:
        """Add a text."""
        self._weights.append(min(weight(text), self.most))
        return Kept(text, self)

    def settle(self, total: int) -> None:
        """Find the common length for so many bytes of all texts together."""
        self._limit = max(fair_limit(self._weights, total), LEAST)

    def cut(self, text: str) -> str:
        """The text within the common length, counted in bytes of HTML."""
        return cut_middle(text, self._limit)


def fair_limit(weights: Iterable[int], total: int) -> int:
    """The largest limit such that weights cut to it sum to at most `total`."""
    rest, ordered = total, sorted(weights)
    for index, value in enumerate(ordered):
        share = rest // (len(ordered) - index)
        if value > share:
            return max(share, 0)
        rest -= value
    return ordered[-1] if ordered else 0


def weight(text: str) -> int:
    """Bytes of the text as escaped HTML in UTF-8."""
    escaped = 4 * (text.count("&") + text.count('"') + text.count("'")) + 3 * (text.count("<") + text.count(">"))
    return len(text.encode("utf-8", "replace")) + escaped


def cut_middle(text: str, limit: int) -> str:
    """Head and tail of a text of more than `limit` bytes of HTML, and between them how many characters are missing."""
    if len(text) <= limit and weight(text) <= limit:
        return text
    half = min(len(text), limit) // 2
    while weight(text[:half]) + weight(text[-half:]) > limit and half > 1:
        half = half * 9 // 10
    return f"{text[:half]}\n{MARK.format(len(text) - 2 * half)}\n{text[-half:]}"

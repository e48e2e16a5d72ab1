"""BM25, the ranking of both searches: `search` over sections of the references, `find` over example kernels.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

K1, B = 1.4, 0.6


class Bm25:
    """Texts as bags of words; a word counts more often where it stands in a field that weighs more."""

    def __init__(self, bags: Sequence[Mapping[str, float]]) -> None:
        self.bags = bags
        lengths = [sum(bag.values()) for bag in bags]
        mean = sum(lengths) / max(len(lengths), 1)
        self._norms = [K1 * (1 - B + B * length / mean) for length in lengths]
        self._counts = Counter(word for bag in bags for word in bag)

    @property
    def words(self) -> frozenset[str]:
        """Every word of the texts."""
        return frozenset(self._counts)

    def rarity(self, count: int = 1) -> float:
        """What a word is worth that `count` of the texts have: the inverse document frequency."""
        return math.log(1 + (len(self.bags) - count + 0.5) / (count + 0.5))

    def scores(self, query: Mapping[str, float]) -> list[float]:
        """The score of each text for a query: word → weight, which is negative for a word that is not wanted."""
        weights = {w: weight * self.rarity(self._counts[w]) for w, weight in query.items() if w in self._counts}
        return [
            sum(weight * bag[w] * (K1 + 1) / (bag[w] + norm) for w, weight in weights.items() if w in bag)
            for bag, norm in zip(self.bags, self._norms)
        ]
